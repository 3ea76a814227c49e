// out[i] = value, as bits of a word.
struct P { n: u32, bits: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) nwg: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = flat(wid, nwg) * 64u + lane;
  if (i < p.n) { out[i] = p.bits; }
}
