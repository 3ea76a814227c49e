//! use reduce, rope
// dN = dOut turned back; dx = rstd·w·dN − x·rstd³·Σ(dN·w·x)/D; dw_rows = dN·x·rstd, summed over the rows afterwards.
struct P { rows: u32, heads: u32, d: u32, eps: f32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> d_out: array<f32>;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> w: array<f32>;
@group(0) @binding(4) var<storage, read> positions: array<i32>;
@group(0) @binding(5) var<storage, read> turns: array<vec2u>;
@group(0) @binding(6) var<storage, read_write> dx: array<f32>;
@group(0) @binding(7) var<storage, read_write> dw_rows: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) nwg: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = flat(wid, nwg);
  if (row >= p.rows) { return; }
  let base = row * p.d;
  let position = u32(positions[row / p.heads]);
  var squares = 0.0;
  var product = 0.0;
  for (var i = lane; i < p.d / 2u; i += WG) {
    let lo = base + i;
    let hi = lo + p.d / 2u;
    let cs = rotation(position, turns[i]);
    let a = d_out[lo] * cs.x + d_out[hi] * cs.y;
    let b = d_out[hi] * cs.x - d_out[lo] * cs.y;
    squares += x[lo] * x[lo] + x[hi] * x[hi];
    product += a * w[i] * x[lo] + b * w[i + p.d / 2u] * x[hi];
    dx[lo] = a;
    dx[hi] = b;
  }
  let r = 1.0 / sqrt(wg_sum(squares, lane) / f32(p.d) + p.eps);
  let k = wg_sum(product, lane) * r * r * r / f32(p.d);
  // Each lane goes on with the elements that it wrote itself.
  for (var i = lane; i < p.d / 2u; i += WG) {
    for (var half = 0u; half < 2u; half++) {
      let d = i + half * (p.d / 2u);
      let at = base + d;
      let dn = dx[at];
      dw_rows[at] = dn * x[at] * r;
      dx[at] = dn * w[d] * r - x[at] * k;
    }
  }
}
