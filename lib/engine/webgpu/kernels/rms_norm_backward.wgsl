//! use reduce
// dx += rstd·w·dOut − x·rstd³·Σ(dOut·w·x)/C.
struct P { rows: u32, width: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> d_out: array<f32>;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> w: array<f32>;
@group(0) @binding(4) var<storage, read> rstd: array<f32>;
@group(0) @binding(5) var<storage, read_write> dx: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) nwg: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = flat(wid, nwg);
  if (row >= p.rows) { return; }
  let base = row * p.width;
  let r = rstd[row];
  var sum = 0.0;
  for (var c = lane; c < p.width; c += WG) { sum += d_out[base + c] * w[c] * x[base + c]; }
  let k = wg_sum(sum, lane) * r * r * r / f32(p.width);
  for (var c = lane; c < p.width; c += WG) { dx[base + c] += d_out[base + c] * w[c] * r - x[base + c] * k; }
}
