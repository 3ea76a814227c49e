// partials [blocks, N·taps]: Σ over a block of tokens of dOut[t,n]·x[t−j,n] within the document.
struct P { rows: u32, width: u32, taps: u32, block: u32, n: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> d_out: array<f32>;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> doc_start: array<i32>;
@group(0) @binding(4) var<storage, read_write> partials: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) nwg: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = flat(wid, nwg) * 64u + lane;
  if (i >= p.n) { return; }
  let columns = p.width * p.taps;
  let c = (i % columns) / p.taps;
  let j = (i % columns) % p.taps;
  let first = (i / columns) * p.block;
  let last = min(first + p.block, p.rows);
  var sum = 0.0;
  for (var t = first; t < last; t++) {
    if (t >= u32(doc_start[t]) + j) { sum += d_out[t * p.width + c] * x[(t - j) * p.width + c]; }
  }
  partials[i] = sum;
}
