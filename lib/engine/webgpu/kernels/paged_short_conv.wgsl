// As short_conv, the inputs read from a cache [S,N] through the page table.
struct P { n: u32, width: u32, taps: u32, page_size: u32, pages: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> cache: array<f32>;
@group(0) @binding(2) var<storage, read> w: array<f32>;
@group(0) @binding(3) var<storage, read> page_table: array<i32>;
@group(0) @binding(4) var<storage, read> sequence: array<i32>;
@group(0) @binding(5) var<storage, read> visible: array<i32>;
@group(0) @binding(6) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) nwg: vec3u, @builtin(local_invocation_index) lane: u32) {
  let i = flat(wid, nwg) * 64u + lane;
  if (i >= p.n) { return; }
  let t = i / p.width;
  let c = i % p.width;
  let seen = u32(visible[t]);
  let table = u32(sequence[t]) * p.pages;
  var sum = 0.0;
  for (var j = 0u; j < max(1u, min(p.taps, seen)); j++) {
    let at = seen - 1u - j;
    let slot = u32(page_table[table + at / p.page_size]) * p.page_size + at % p.page_size;
    let x = cache[slot * p.width + c];
    if (j == 0u) { sum = x; }
    if (j < p.taps) { sum += w[c * p.taps + j] * x; }
  }
  out[i] = sum;
}
