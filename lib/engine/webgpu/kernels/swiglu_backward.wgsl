//! inplace
// With σ = sigmoid(gate): dGate = dOut·up·σ·(1 + gate·(1 − σ)), dUp = dOut·gate·σ.
struct P { n: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> d_out: array<f32>;
@group(0) @binding(2) var<storage, read> gate: array<f32>;
@group(0) @binding(3) var<storage, read> up: array<f32>;
@group(0) @binding(4) var<storage, read_write> d_gate: array<f32>;
@group(0) @binding(5) var<storage, read_write> d_up: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) nwg: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = flat(wid, nwg) * 64u + lane;
  if (i >= p.n) { return; }
  let g = gate[i];
  let u = up[i];
  let d = d_out[i];
  let s = 1.0 / (1.0 + exp(min(-g, 80.0)));
  d_gate[i] = d * u * s * (1.0 + g * (1.0 - s));
  d_up[i] = d * g * s;
}
