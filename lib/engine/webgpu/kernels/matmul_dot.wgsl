//! typed a, b
//! use reduce
// For few rows (decoding): out [M,N] = a [M,K]·b [N,K]ᵀ. A workgroup takes one row of b and ROWS rows of a, its lanes split K.
struct P { m: u32, n: u32, k: u32, ldo: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> a: array<TYPE_a>;
@group(0) @binding(2) var<storage, read> b: array<TYPE_b>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) nwg: vec3u, @builtin(local_invocation_index) lane: u32) {
  let n = flat(wid, nwg);
  let m0 = wid.z * ROWS;
  if (n >= p.n) { return; }
  var sum: array<f32, ROWS>;
  if (FOURS) {
    for (var k = lane * 4u; k < p.k; k += WG * 4u) {
      let w = load_b4(n * p.k + k);
      for (var r = 0u; r < ROWS; r++) { sum[r] += dot(load_a4(min(m0 + r, p.m - 1u) * p.k + k), w); }
    }
  } else {
    for (var k = lane; k < p.k; k += WG) {
      let w = load_b(n * p.k + k);
      for (var r = 0u; r < ROWS; r++) { sum[r] += load_a(min(m0 + r, p.m - 1u) * p.k + k) * w; }
    }
  }
  for (var r = 0u; r < ROWS; r++) {
    let total = wg_sum(sum[r], lane);
    if (lane == 0u && m0 + r < p.m) {
      let at = (m0 + r) * p.ldo + n;
      if (ACCUMULATE) { out[at] += total; } else { out[at] = total; }
    }
  }
}
