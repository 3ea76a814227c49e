// Where each token stands among the tokens of the same id: chain[2t] = 1 if it is the first, chain[2t+1] = the next one's index (or T).
// Quadratic in T, of integers only: it lets the sum of the rows run in token order without atomics or a sort.
struct P { t: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> ids: array<i32>;
@group(0) @binding(2) var<storage, read_write> chain: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) nwg: vec3u, @builtin(local_invocation_index) lane: u32) {
  let t = flat(wid, nwg) * 64u + lane;
  if (t >= p.t) { return; }
  let id = ids[t];
  var first = 1u;
  for (var j = 0u; j < t; j++) { if (ids[j] == id) { first = 0u; break; } }
  var next = t + 1u;
  for (; next < p.t; next++) { if (ids[next] == id) { break; } }
  chain[2u * t] = first;
  chain[2u * t + 1u] = next;
}
