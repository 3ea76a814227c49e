//! use reduce, rope
// One workgroup a head of a token: RMSNorm with weight w [D], then rotate-half RoPE.
struct P { rows: u32, heads: u32, d: u32, eps: f32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> w: array<f32>;
@group(0) @binding(3) var<storage, read> positions: array<i32>;
@group(0) @binding(4) var<storage, read> turns: array<vec2u>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) nwg: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = flat(wid, nwg);
  if (row >= p.rows) { return; }
  let base = row * p.d;
  var sum = 0.0;
  for (var d = lane; d < p.d; d += WG) { sum += x[base + d] * x[base + d]; }
  let r = 1.0 / sqrt(wg_sum(sum, lane) / f32(p.d) + p.eps);
  let position = u32(positions[row / p.heads]);
  for (var i = lane; i < p.d / 2u; i += WG) {
    let cs = rotation(position, turns[i]);
    let a = x[base + i] * r * w[i];
    let b = x[base + i + p.d / 2u] * r * w[i + p.d / 2u];
    out[base + i] = a * cs.x - b * cs.y;
    out[base + i + p.d / 2u] = b * cs.x + a * cs.y;
  }
}
