// out = x, f32 to packed f16 or bf16, nearest even. One invocation writes one word: two elements.
struct P { n: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<u32>;

fn to_bf16(x: f32) -> u32 {
  let u = bitcast<u32>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) { return (u >> 16u) | 0x40u; }
  return (u + 0x7fffu + ((u >> 16u) & 1u)) >> 16u;
}

// pack2x16float leaves the rounding to the driver.
fn to_f16(x: f32) -> u32 {
  let u = bitcast<u32>(x);
  let sign = (u >> 16u) & 0x8000u;
  let a = u & 0x7fffffffu;
  if (a > 0x7f800000u) { return sign | 0x7e00u; }
  if (a >= 0x477ff000u) { return sign | 0x7c00u; } // 65520 and above round to infinity
  if (a < 0x38800000u) { return sign | u32(round(bitcast<f32>(a) * 16777216.0)); } // subnormal: multiples of 2^-24
  return sign | ((a + 0xfffu + ((a >> 13u) & 1u) - 0x38000000u) >> 13u);
}

fn to_half(x: f32) -> u32 {
  if (F16) { return to_f16(x); }
  return to_bf16(x);
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) nwg: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = (flat(wid, nwg) * 64u + lane) * 2u;
  if (i >= p.n) { return; }
  var word = to_half(x[i]);
  // The other half of an odd tensor's last word may belong to a neighbour.
  if (i + 1u < p.n) { word |= to_half(x[i + 1u]) << 16u; } else { word |= out[i / 2u] & 0xffff0000u; }
  out[i / 2u] = word;
}
