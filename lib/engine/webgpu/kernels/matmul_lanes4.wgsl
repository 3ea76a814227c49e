// As matmul_lanes, where N is a multiple of 4: a lane takes fours of neighbouring columns (COLS4 of them, a subgroup apart), so that one read of a
// serves four columns more. On lavapipe the reads are what the product waits for.
struct P { m: u32, n: u32, k: u32, ldo: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<vec4f>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) lane: u32) {
  let n0 = (wid.x * (WG * COLS4) + lane) * 4u;
  let m0 = wid.y * ROWS;
  var sum: array<array<vec4f, COLS4>, ROWS>;
  var a_at: array<u32, ROWS>;
  for (var r = 0u; r < ROWS; r++) {
    let m = min(m0 + r, p.m - 1u);
    a_at[r] = select(m * p.k, m, TRANS_A);
  }
  var b_at: array<u32, COLS4>;
  for (var c = 0u; c < COLS4; c++) { b_at[c] = min(n0 + c * WG * 4u, p.n - 4u) / 4u; }
  let a_step = select(1u, p.m, TRANS_A);
  let b_step = p.n / 4u;
  for (var k = 0u; k < p.k; k++) {
    var x: array<vec4f, COLS4>;
    for (var c = 0u; c < COLS4; c++) { x[c] = b[b_at[c] + k * b_step]; }
    for (var r = 0u; r < ROWS; r++) {
      let y = vec4f(a[a_at[r] + k * a_step]);
      for (var c = 0u; c < COLS4; c++) { sum[r][c] = fma(y, x[c], sum[r][c]); }
    }
  }
  for (var r = 0u; r < ROWS; r++) {
    for (var c = 0u; c < COLS4; c++) {
      let n = n0 + c * WG * 4u;
      if (m0 + r < p.m && n < p.n) {
        let at = (m0 + r) * p.ldo + n;
        for (var j = 0u; j < 4u; j++) {
          if (ACCUMULATE) { out[at + j] += sum[r][c][j]; } else { out[at + j] = sum[r][c][j]; }
        }
      }
    }
  }
}
