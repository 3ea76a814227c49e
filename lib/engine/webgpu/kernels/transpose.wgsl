//! typed x
// out [C,R] = xᵀ of x [R,C], widened to f32. A lane writes a column of four, so that reads or writes are contiguous either way.
struct P { rows: u32, columns: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> x: array<TYPE_x>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) gid: vec3u) {
  if (gid.x >= p.rows || gid.y >= p.columns) { return; }
  out[gid.y * p.rows + gid.x] = load_x(gid.x * p.columns + gid.y);
}
