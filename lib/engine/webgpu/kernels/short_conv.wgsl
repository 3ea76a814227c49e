// out[t,n] = x[t,n] + Σ_j w[n,j]·x[t−j,n] within the document.
struct P { n: u32, width: u32, taps: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> w: array<f32>;
@group(0) @binding(3) var<storage, read> doc_start: array<i32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) nwg: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = flat(wid, nwg) * 64u + lane;
  if (i >= p.n) { return; }
  let t = i / p.width;
  let c = i % p.width;
  let taps = min(p.taps, t - u32(doc_start[t]) + 1u);
  var sum = x[i];
  for (var j = 0u; j < taps; j++) { sum += w[c * p.taps + j] * x[i - j * p.width]; }
  out[i] = sum;
}
