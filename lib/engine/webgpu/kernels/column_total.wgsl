// out [C] += the sum of partials [blocks, C], in order.
struct P { width: u32, blocks: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> partials: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) nwg: vec3u, @builtin(local_invocation_index) lane: u32) {
  let c = flat(wid, nwg) * 64u + lane;
  if (c >= p.width) { return; }
  var sum = 0.0;
  for (var b = 0u; b < p.blocks; b++) { sum += partials[b * p.width + c]; }
  out[c] += sum;
}
