// For software adapters: a subgroup a workgroup, a column a lane (COLS of them, a subgroup apart), ROWS rows, no barriers. The values of a are
// the same for all lanes. b is [K,N] in f32.
struct P { m: u32, n: u32, k: u32, ldo: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) lane: u32) {
  let n0 = wid.x * (WG * COLS) + lane;
  let m0 = wid.y * ROWS;
  var sum: array<array<f32, COLS>, ROWS>;
  var a_at: array<u32, ROWS>;
  for (var r = 0u; r < ROWS; r++) {
    let m = min(m0 + r, p.m - 1u);
    a_at[r] = select(m * p.k, m, TRANS_A);
  }
  var b_at: array<u32, COLS>;
  for (var c = 0u; c < COLS; c++) { b_at[c] = min(n0 + c * WG, p.n - 1u); }
  let a_step = select(1u, p.m, TRANS_A);
  for (var k = 0u; k < p.k; k++) {
    var x: array<f32, COLS>;
    for (var c = 0u; c < COLS; c++) { x[c] = b[b_at[c] + k * p.n]; }
    for (var r = 0u; r < ROWS; r++) {
      let y = a[a_at[r] + k * a_step];
      for (var c = 0u; c < COLS; c++) { sum[r][c] = fma(y, x[c], sum[r][c]); }
    }
  }
  for (var r = 0u; r < ROWS; r++) {
    for (var c = 0u; c < COLS; c++) {
      let n = n0 + c * WG;
      if (m0 + r < p.m && n < p.n) {
        let at = (m0 + r) * p.ldo + n;
        if (ACCUMULATE) { out[at] += sum[r][c]; } else { out[at] = sum[r][c]; }
      }
    }
  }
}
