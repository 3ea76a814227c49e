// AdamW (Loshchilov & Hutter, Algorithm 2), epsilon outside the bias-corrected root as in PyTorch.
// step = lr / (1 − β₁ᵗ), root = 1 / √(1 − β₂ᵗ), keep = 1 − lr·weightDecay; c1 = 1 − β₁, c2 = 1 − β₂ rounded on the host.
struct P { n: u32, beta1: f32, c1: f32, beta2: f32, c2: f32, eps: f32, step: f32, root: f32, keep: f32, grad_scale: f32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> grad: array<f32>;
@group(0) @binding(2) var<storage, read_write> weight: array<f32>;
@group(0) @binding(3) var<storage, read_write> m: array<f32>;
@group(0) @binding(4) var<storage, read_write> v: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) nwg: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = flat(wid, nwg) * 64u + lane;
  if (i >= p.n) { return; }
  let g = grad[i] * p.grad_scale;
  let m1 = p.beta1 * m[i] + p.c1 * g;
  let v1 = p.beta2 * v[i] + p.c2 * g * g;
  m[i] = m1;
  v[i] = v1;
  weight[i] = weight[i] * p.keep - p.step * m1 / (sqrt(v1) * p.root + p.eps);
}
