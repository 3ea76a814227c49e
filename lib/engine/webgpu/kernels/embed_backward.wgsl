// dTable[ids[t]] += Σ dOut over the tokens with that id, in token order; the window of the table as in embed.
struct P { n: u32, t: u32, width: u32, first: u32, rows: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> d_out: array<f32>;
@group(0) @binding(2) var<storage, read> ids: array<i32>;
@group(0) @binding(3) var<storage, read> chain: array<u32>;
@group(0) @binding(4) var<storage, read_write> d_table: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) nwg: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = flat(wid, nwg) * 64u + lane;
  if (i >= p.n) { return; }
  let t = i / p.width;
  let c = i % p.width;
  let row = u32(ids[t]) - p.first;
  if (chain[2u * t] == 0u || row >= p.rows) { return; }
  var sum = d_table[row * p.width + c];
  for (var j = t; j < p.t; j = chain[2u * j + 1u]) { sum += d_out[j * p.width + c]; }
  d_table[row * p.width + c] = sum;
}
