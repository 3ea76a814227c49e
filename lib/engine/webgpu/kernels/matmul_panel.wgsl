//! subgroups
// For software adapters, where reads are what a product waits for: a subgroup a workgroup, four columns a lane, ROWS rows, no barriers. llvmpipe
// reads a storage buffer lane by lane, with a branch each; a uniform buffer (a window of b from matmul_pack) without branches. Of a
// the lanes read neighbouring k at once and hand them round.
struct P { m: u32, n: u32, k: u32, ldo: u32, first: u32, k0: u32, depth: u32, onto: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> a: array<f32>;
@group(0) @binding(2) var<uniform> b: array<vec4f, WINDOW / 4u>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) lane: u32) {
  let n = p.first + (wid.y * WG + lane) * 4u;
  let m0 = wid.x * ROWS;
  let b_at = wid.y * p.depth * WG + lane;
  var a_at: array<u32, ROWS>;
  for (var r = 0u; r < ROWS; r++) {
    let m = min(m0 + r, p.m - 1u);
    a_at[r] = select(m * p.k, m, TRANS_A);
  }
  let a_step = select(1u, p.m, TRANS_A);
  var sum: array<vec4f, ROWS>;
  if (p.onto == 1u) {
    for (var r = 0u; r < ROWS; r++) {
      for (var j = 0u; j < 4u; j++) {
        if (m0 + r < p.m && n + j < p.n) { sum[r][j] = out[(m0 + r) * p.ldo + n + j]; }
      }
    }
  }
  for (var k0 = 0u; k0 < p.depth; k0 += WG) {
    // Beyond K, where b is zero, whatever number of a's.
    let k = min(p.k0 + k0 + lane, p.k - 1u);
    var y: array<f32, ROWS>;
    for (var r = 0u; r < ROWS; r++) { y[r] = a[a_at[r] + k * a_step]; }
    var x: array<vec4f, WG>;
    for (var i = 0u; i < WG; i++) { x[i] = b[b_at + (k0 + i) * WG]; }
    // Two rows at a time, so that their sums stay in registers over the lanes' k.
    for (var r = 0u; r < ROWS; r += 2u) {
      for (var i = 0u; i < WG; i++) {
        sum[r] = fma(vec4f(subgroupShuffle(y[r], i)), x[i], sum[r]);
        sum[r + 1u] = fma(vec4f(subgroupShuffle(y[r + 1u], i)), x[i], sum[r + 1u]);
      }
    }
  }
  for (var r = 0u; r < ROWS; r++) {
    for (var j = 0u; j < 4u; j++) {
      if (m0 + r < p.m && n + j < p.n) { out[(m0 + r) * p.ldo + n + j] = sum[r][j]; }
    }
  }
}
