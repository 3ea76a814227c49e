//! typed a, b
//! matrix
// For adapters with subgroup matrices of f16 (tensor cores): 64×64 of the output a workgroup of four subgroups, 32×32 each. f32 operands are split
// into two f16 numbers, value = high + low / 2048, and the products of the parts are added up in f32: near f32's precision, within f16's range. A packed
// b of f16 is its high part alone (PARTS_B 1); bf16 is split, for its numbers may lie below f16's.
struct P { m: u32, n: u32, k: u32, ldo: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> a: array<TYPE_a>;
@group(0) @binding(2) var<storage, read> b: array<TYPE_b>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

const TILE = 64u;
const LANES = 4u * SUBGROUP;
alias Left = subgroup_matrix_left<f16, MK, MM>;
alias Right = subgroup_matrix_right<f16, MN, MK>;
alias Result = subgroup_matrix_result<f32, MN, MM>;
const ROWS = 32u / MM;
const COLS = 32u / MN;
const LOW = 2048.0;

var<workgroup> high_a: array<f16, TILE * BK>; // [TILE, BK]
var<workgroup> low_a: array<f16, TILE * BK>;
var<workgroup> high_b: array<f16, BK * TILE>; // [BK, TILE]
var<workgroup> low_b: array<f16, BK * TILE>;
// One matrix of each part, for each of the four subgroups.
var<workgroup> high_out: array<f32, 4u * MM * MN>;
var<workgroup> low_out: array<f32, 4u * MM * MN>;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) lane: u32) {
  let m0 = wid.y * TILE;
  let n0 = wid.x * TILE;
  let row = lane / SUBGROUP / 2u * 32u;
  let col = lane / SUBGROUP % 2u * 32u;
  var high: array<array<Result, COLS>, ROWS>;
  var low: array<array<Result, COLS>, ROWS>;
  for (var k0 = 0u; k0 < p.k; k0 += BK) {
    for (var i = lane; i < TILE * BK; i += LANES) {
      let m = select(i / BK, i % TILE, TRANS_A);
      let k = select(i % BK, i / TILE, TRANS_A);
      var value = 0.0;
      if (k0 + k < p.k && m0 + m < p.m) { value = load_a(select((m0 + m) * p.k + k0 + k, (k0 + k) * p.m + m0 + m, TRANS_A)); }
      let part = f16(clamp(value, -65504.0, 65504.0));
      high_a[m * BK + k] = part;
      low_a[m * BK + k] = f16(clamp((value - f32(part)) * LOW, -65504.0, 65504.0));
    }
    for (var i = lane; i < TILE * BK; i += LANES) {
      let n = select(i % TILE, i / BK, TRANS_B);
      let k = select(i / TILE, i % BK, TRANS_B);
      var value = 0.0;
      if (k0 + k < p.k && n0 + n < p.n) { value = load_b(select((k0 + k) * p.n + n0 + n, (n0 + n) * p.k + k0 + k, TRANS_B)); }
      let part = f16(clamp(value, -65504.0, 65504.0));
      high_b[k * TILE + n] = part;
      if (PARTS_B == 2u) { low_b[k * TILE + n] = f16(clamp((value - f32(part)) * LOW, -65504.0, 65504.0)); }
    }
    workgroupBarrier();
    for (var k = 0u; k < BK; k += MK) {
      for (var r = 0u; r < ROWS; r++) {
        let at = (row + r * MM) * BK + k;
        let left = subgroupMatrixLoad<Left, row_major>(&high_a, at, BK);
        let left_low = subgroupMatrixLoad<Left, row_major>(&low_a, at, BK);
        for (var c = 0u; c < COLS; c++) {
          let bt = k * TILE + col + c * MN;
          let right = subgroupMatrixLoad<Right, row_major>(&high_b, bt, TILE);
          high[r][c] = subgroupMatrixMultiplyAccumulate(left, right, high[r][c]);
          low[r][c] = subgroupMatrixMultiplyAccumulate(left_low, right, low[r][c]);
          if (PARTS_B == 2u) {
            let right_low = subgroupMatrixLoad<Right, row_major>(&low_b, bt, TILE);
            low[r][c] = subgroupMatrixMultiplyAccumulate(left, right_low, low[r][c]);
          }
        }
      }
    }
    workgroupBarrier();
  }
  // A matrix's elements lie with lanes that only the driver knows: the parts meet in workgroup memory.
  let mine = lane / SUBGROUP * MM * MN;
  for (var r = 0u; r < ROWS; r++) {
    for (var c = 0u; c < COLS; c++) {
      subgroupMatrixStore<row_major>(&high_out, mine, high[r][c], MN);
      subgroupMatrixStore<row_major>(&low_out, mine, low[r][c], MN);
      workgroupBarrier();
      for (var i = lane % SUBGROUP; i < MM * MN; i += SUBGROUP) {
        let m = m0 + row + r * MM + i / MN;
        let n = n0 + col + c * MN + i % MN;
        if (m < p.m && n < p.n) {
          let value = high_out[mine + i] + low_out[mine + i] / LOW;
          if (ACCUMULATE) { out[m * p.ldo + n] += value; } else { out[m * p.ldo + n] = value; }
        }
      }
      workgroupBarrier();
    }
  }
}
