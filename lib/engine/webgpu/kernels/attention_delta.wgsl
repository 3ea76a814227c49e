//! typed x, y
// delta[r] = Σ_d x[r,d]·y[r,d], of dOut and out; added up in the order in which the backward kernels add dOut·v, so that a query which sees
// one key only gets a gradient of exactly 0.
struct P { d: u32, rows: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> x: array<TYPE_x>;
@group(0) @binding(2) var<storage, read> y: array<TYPE_y>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) nwg: vec3u, @builtin(local_invocation_index) lane: u32) {
  let r = flat(wid, nwg) * 64u + lane;
  if (r >= p.rows) { return; }
  var sum = 0.0;
  for (var i = 0u; i < p.d / 4u; i++) { sum += dot(load_x4(r * p.d + i * 4u), load_y4(r * p.d + i * 4u)); }
  out[r] = sum;
}
