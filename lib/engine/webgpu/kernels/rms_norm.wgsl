//! use reduce
// One workgroup a row: rstd = 1/√(mean(x²) + eps), out = x·rstd·w. (Zhang & Sennrich 2019, eq. 4.)
struct P { rows: u32, width: u32, eps: f32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> w: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;
@group(0) @binding(4) var<storage, read_write> rstd: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) nwg: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = flat(wid, nwg);
  if (row >= p.rows) { return; }
  let base = row * p.width;
  var sum = 0.0;
  for (var c = lane; c < p.width; c += WG) { sum += x[base + c] * x[base + c]; }
  let r = 1.0 / sqrt(wg_sum(sum, lane) / f32(p.width) + p.eps);
  for (var c = lane; c < p.width; c += WG) { out[base + c] = x[base + c] * r * w[c]; }
  if (lane == 0u) { rstd[row] = r; }
}
