// partials [blocks, C]: sums down the columns of a block of rows. NORM: of dOut·x·rstd[row] (the gradient of a norm's weight), else of dOut.
struct P { rows: u32, width: u32, block: u32, n: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> d_out: array<f32>;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> rstd: array<f32>;
@group(0) @binding(4) var<storage, read_write> partials: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) nwg: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = flat(wid, nwg) * 64u + lane;
  if (i >= p.n) { return; }
  let c = i % p.width;
  let first = (i / p.width) * p.block;
  let last = min(first + p.block, p.rows);
  var sum = 0.0;
  for (var t = first; t < last; t++) {
    let at = t * p.width + c;
    if (NORM) { sum += d_out[at] * x[at] * rstd[t]; } else { sum += d_out[at]; }
  }
  partials[i] = sum;
}
