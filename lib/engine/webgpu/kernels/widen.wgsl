//! typed x
// out = x, f16 or bf16 (or f32) to f32.
struct P { n: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> x: array<TYPE_x>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) nwg: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = flat(wid, nwg) * 64u + lane;
  if (i < p.n) { out[i] = load_x(i); }
}
