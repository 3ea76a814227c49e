//! typed b
// b, [K,N] or with TRANS_B [N,K], as matmul_panel reads it: windows of 64 KiB, each `per` panels of 4·WG columns by `depth` rows of k, in f32.
// A panel of more rows than a window holds lies in `parts` windows, one after the other. Zeros beyond K and N.
struct P { n: u32, k: u32, first: u32, depth: u32, per: u32, parts: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> b: array<TYPE_b>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) lane: u32) {
  let panel = wid.x % p.per * p.depth;
  let window = wid.x / p.per * p.parts;
  for (var i = 0u; i < 16u; i++) {
    let k = wid.y * 16u + i;
    if (k >= p.depth * p.parts) { break; }
    let at = (window + k / p.depth) * WINDOW + (panel + k % p.depth) * 4u * WG;
    for (var c = lane; c < 4u * WG; c += WG) {
      let n = p.first + wid.x * 4u * WG + c;
      var x = 0.0;
      if (k < p.k && n < p.n) { x = load_b(select(k * p.n + n, n * p.k + k, TRANS_B)); }
      out[at + c] = x;
    }
  }
}
