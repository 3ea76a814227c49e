//! typed a, b
// For GPUs: BM×BN tiles of the output, BK deep slices of a and b in workgroup memory, TM×TN elements an invocation, in fours.
struct P { m: u32, n: u32, k: u32, ldo: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> a: array<TYPE_a>;
@group(0) @binding(2) var<storage, read> b: array<TYPE_b>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

const TX = BN / TN;
const TY = BM / TM;
const LANES = TX * TY;
const RM = TM / 4u;
const RN = TN / 4u;
// k-major, four neighbours of m or n a vector, so that a lane reads its share in whole vectors and neighbouring lanes neighbouring ones.
var<workgroup> slice_a: array<vec4f, BK * BM / 4u>;
var<workgroup> slice_b: array<vec4f, BK * BN / 4u>;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) lane: u32) {
  let m0 = wid.y * BM;
  let n0 = wid.x * BN;
  let x = lane % TX;
  let y = lane / TX;
  var sum: array<array<vec4f, RN>, TM>;
  for (var k0 = 0u; k0 < p.k; k0 += BK) {
    // Neighbouring lanes read neighbouring words, or fours of them, of a and b whichever way they lie.
    if (FOURS) {
      for (var i = lane * 4u; i < BM * BK; i += LANES * 4u) {
        var value = vec4f(0.0);
        if (TRANS_A) {
          let m = i % BM;
          let k = i / BM;
          if (k0 + k < p.k && m0 + m < p.m) { value = load_a4((k0 + k) * p.m + m0 + m); }
          slice_a[(k * BM + m) / 4u] = value;
        } else {
          let k = i % BK;
          let m = i / BK;
          if (k0 + k < p.k && m0 + m < p.m) { value = load_a4((m0 + m) * p.k + k0 + k); }
          for (var c = 0u; c < 4u; c++) { slice_a[((k + c) * BM + m) / 4u][m % 4u] = value[c]; }
        }
      }
      for (var i = lane * 4u; i < BN * BK; i += LANES * 4u) {
        var value = vec4f(0.0);
        if (TRANS_B) {
          let k = i % BK;
          let n = i / BK;
          if (k0 + k < p.k && n0 + n < p.n) { value = load_b4((n0 + n) * p.k + k0 + k); }
          for (var c = 0u; c < 4u; c++) { slice_b[((k + c) * BN + n) / 4u][n % 4u] = value[c]; }
        } else {
          let n = i % BN;
          let k = i / BN;
          if (k0 + k < p.k && n0 + n < p.n) { value = load_b4((k0 + k) * p.n + n0 + n); }
          slice_b[(k * BN + n) / 4u] = value;
        }
      }
    } else {
      for (var i = lane; i < BM * BK; i += LANES) {
        let m = select(i / BK, i % BM, TRANS_A);
        let k = select(i % BK, i / BM, TRANS_A);
        var value = 0.0;
        if (k0 + k < p.k && m0 + m < p.m) { value = load_a(select((m0 + m) * p.k + k0 + k, (k0 + k) * p.m + m0 + m, TRANS_A)); }
        slice_a[(k * BM + m) / 4u][m % 4u] = value;
      }
      for (var i = lane; i < BN * BK; i += LANES) {
        let n = select(i % BN, i / BK, TRANS_B);
        let k = select(i / BN, i % BK, TRANS_B);
        var value = 0.0;
        if (k0 + k < p.k && n0 + n < p.n) { value = load_b(select((k0 + k) * p.n + n0 + n, (n0 + n) * p.k + k0 + k, TRANS_B)); }
        slice_b[(k * BN + n) / 4u][n % 4u] = value;
      }
    }
    workgroupBarrier();
    for (var k = 0u; k < BK; k++) {
      var vb: array<vec4f, RN>;
      for (var c = 0u; c < RN; c++) { vb[c] = slice_b[k * (BN / 4u) + x + c * TX]; }
      for (var r = 0u; r < RM; r++) {
        let va = slice_a[k * (BM / 4u) + y + r * TY];
        for (var c = 0u; c < RN; c++) {
          for (var j = 0u; j < 4u; j++) { sum[r * 4u + j][c] = fma(vec4f(va[j]), vb[c], sum[r * 4u + j][c]); }
        }
      }
    }
    workgroupBarrier();
  }
  for (var r = 0u; r < TM; r++) {
    let m = m0 + (y + r / 4u * TY) * 4u + r % 4u;
    for (var c = 0u; c < RN; c++) {
      for (var j = 0u; j < 4u; j++) {
        let n = n0 + (x + c * TX) * 4u + j;
        if (m < p.m && n < p.n) {
          let at = m * p.ldo + n;
          if (ACCUMULATE) { out[at] += sum[r][c][j]; } else { out[at] = sum[r][c][j]; }
        }
      }
    }
  }
}
