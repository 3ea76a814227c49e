//! use reduce
// partial[first + g] = Σ x² over the elements of workgroup g.
struct P { n: u32, first: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> partials: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) nwg: vec3u, @builtin(local_invocation_index) lane: u32) {
  var sum = 0.0;
  for (var i = wid.x * WG + lane; i < p.n; i += nwg.x * WG) { sum += x[i] * x[i]; }
  let total = wg_sum(sum, lane);
  if (lane == 0u) { partials[p.first + wid.x] = total; }
}
