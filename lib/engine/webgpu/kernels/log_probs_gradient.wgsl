//! use masks
// In place: logits [R, columns] → dLogits = g·(1[v = target] − p), 0 where the mask forbids.
struct P { n: u32, columns: u32, first: u32, first_row: u32, words: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> d_lp: array<f32>;
@group(0) @binding(2) var<storage, read> lse: array<f32>;
@group(0) @binding(3) var<storage, read> targets: array<i32>;
@group(0) @binding(4) var<storage, read> mask_bits: array<u32>;
@group(0) @binding(5) var<storage, read> mask_row: array<i32>;
@group(0) @binding(6) var<storage, read_write> logits: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) nwg: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = flat(wid, nwg) * 64u + lane;
  if (i >= p.n) { return; }
  let m = p.first_row + i / p.columns;
  let v = p.first + i % p.columns;
  var probability = 0.0;
  if (allowed(m, v)) { probability = exp(logits[i] - lse[m]); }
  logits[i] = d_lp[m] * (select(0.0, 1.0, u32(targets[m]) == v) - probability);
}
