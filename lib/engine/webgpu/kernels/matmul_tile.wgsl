//! typed a, b
// For GPUs: BM×BN tiles of the output, BK deep slices of a and b in workgroup memory, TM×TN elements an invocation.
struct P { m: u32, n: u32, k: u32, ldo: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> a: array<TYPE_a>;
@group(0) @binding(2) var<storage, read> b: array<TYPE_b>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

const TX = BN / TN;
const TY = BM / TM;
const LANES = TX * TY;
// Stored k-major; one column more than needed keeps the writes of a transposed slice off one bank.
const LDA = BM + 1u;
const LDB = BN + 1u;
var<workgroup> slice_a: array<f32, BK * LDA>;
var<workgroup> slice_b: array<f32, BK * LDB>;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) lane: u32) {
  let m0 = wid.y * BM;
  let n0 = wid.x * BN;
  let x = lane % TX;
  let y = lane / TX;
  var sum: array<array<f32, TN>, TM>;
  for (var k0 = 0u; k0 < p.k; k0 += BK) {
    // Neighbouring lanes read neighbouring words, or fours of them, of a and b whichever way they lie.
    if (FOURS) {
      for (var i = lane; i < BM * BK / 4u; i += LANES) {
        var value = vec4f(0.0);
        if (TRANS_A) {
          let m = (i * 4u) % BM;
          let k = (i * 4u) / BM;
          if (k0 + k < p.k && m0 + m < p.m) { value = load_a4((k0 + k) * p.m + m0 + m); }
          for (var c = 0u; c < 4u; c++) { slice_a[k * LDA + m + c] = value[c]; }
        } else {
          let k = (i * 4u) % BK;
          let m = (i * 4u) / BK;
          if (k0 + k < p.k && m0 + m < p.m) { value = load_a4((m0 + m) * p.k + k0 + k); }
          for (var c = 0u; c < 4u; c++) { slice_a[(k + c) * LDA + m] = value[c]; }
        }
      }
      for (var i = lane; i < BN * BK / 4u; i += LANES) {
        var value = vec4f(0.0);
        if (TRANS_B) {
          let k = (i * 4u) % BK;
          let n = (i * 4u) / BK;
          if (k0 + k < p.k && n0 + n < p.n) { value = load_b4((n0 + n) * p.k + k0 + k); }
          for (var c = 0u; c < 4u; c++) { slice_b[(k + c) * LDB + n] = value[c]; }
        } else {
          let n = (i * 4u) % BN;
          let k = (i * 4u) / BN;
          if (k0 + k < p.k && n0 + n < p.n) { value = load_b4((k0 + k) * p.n + n0 + n); }
          for (var c = 0u; c < 4u; c++) { slice_b[k * LDB + n + c] = value[c]; }
        }
      }
    } else {
      for (var i = lane; i < BM * BK; i += LANES) {
        let m = select(i / BK, i % BM, TRANS_A);
        let k = select(i % BK, i / BM, TRANS_A);
        var value = 0.0;
        if (k0 + k < p.k && m0 + m < p.m) { value = load_a(select((m0 + m) * p.k + k0 + k, (k0 + k) * p.m + m0 + m, TRANS_A)); }
        slice_a[k * LDA + m] = value;
      }
      for (var i = lane; i < BN * BK; i += LANES) {
        let n = select(i % BN, i / BK, TRANS_B);
        let k = select(i / BN, i % BK, TRANS_B);
        var value = 0.0;
        if (k0 + k < p.k && n0 + n < p.n) { value = load_b(select((k0 + k) * p.n + n0 + n, (n0 + n) * p.k + k0 + k, TRANS_B)); }
        slice_b[k * LDB + n] = value;
      }
    }
    workgroupBarrier();
    for (var k = 0u; k < BK; k++) {
      var va: array<f32, TM>;
      var vb: array<f32, TN>;
      for (var r = 0u; r < TM; r++) { va[r] = slice_a[k * LDA + y + r * TY]; }
      for (var c = 0u; c < TN; c++) { vb[c] = slice_b[k * LDB + x + c * TX]; }
      for (var r = 0u; r < TM; r++) {
        for (var c = 0u; c < TN; c++) { sum[r][c] = fma(va[r], vb[c], sum[r][c]); }
      }
    }
    workgroupBarrier();
  }
  for (var r = 0u; r < TM; r++) {
    for (var c = 0u; c < TN; c++) {
      let m = m0 + y + r * TY;
      let n = n0 + x + c * TX;
      if (m < p.m && n < p.n) {
        let at = m * p.ldo + n;
        if (ACCUMULATE) { out[at] += sum[r][c]; } else { out[at] = sum[r][c]; }
      }
    }
  }
}
