//! typed a, b
// One invocation an element: the plain kernel that the others are measured and checked against.
struct P { m: u32, n: u32, k: u32, ldo: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> a: array<TYPE_a>;
@group(0) @binding(2) var<storage, read> b: array<TYPE_b>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) gid: vec3u) {
  let n = gid.x;
  let m = gid.y;
  if (m >= p.m || n >= p.n) { return; }
  var sum = 0.0;
  for (var k = 0u; k < p.k; k++) {
    sum += load_a(select(m * p.k + k, k * p.m + m, TRANS_A)) * load_b(select(k * p.n + n, n * p.k + k, TRANS_B));
  }
  if (ACCUMULATE) { sum += out[m * p.ldo + n]; }
  out[m * p.ldo + n] = sum;
}
