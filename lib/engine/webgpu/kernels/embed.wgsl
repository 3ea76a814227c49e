//! typed table
// out [T,C] = table[ids[t]], for the tokens whose row is in the window of the table that is bound: rows first … first + rows.
struct P { n: u32, width: u32, first: u32, rows: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> table: array<TYPE_table>;
@group(0) @binding(2) var<storage, read> ids: array<i32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) nwg: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = flat(wid, nwg) * 64u + lane;
  if (i >= p.n) { return; }
  let row = u32(ids[i / p.width]) - p.first;
  if (row < p.rows) { out[i] = load_table(row * p.width + i % p.width); }
}
