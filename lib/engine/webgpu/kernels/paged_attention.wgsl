//! typed q, k, v
// One workgroup a head of a query token. The keys come in chunks: lanes take keys for the scores, then dimensions for the weighted sum.
struct P { d: u32, t: u32, heads: u32, kv_heads: u32, scale: f32, page_size: u32, pages: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> q: array<TYPE_q>;
@group(0) @binding(2) var<storage, read> k: array<TYPE_k>;
@group(0) @binding(3) var<storage, read> v: array<TYPE_v>;
@group(0) @binding(4) var<storage, read> page_table: array<i32>;
@group(0) @binding(5) var<storage, read> sequence: array<i32>;
@group(0) @binding(6) var<storage, read> visible: array<i32>;
@group(0) @binding(7) var<storage, read_write> out: array<f32>;

const CHUNK = max(64u, WG);
var<workgroup> query: array<vec4f, D / 4u>;
var<workgroup> weights: array<f32, CHUNK>;
var<workgroup> rows: array<u32, CHUNK>; // where the chunk's keys start
var<workgroup> sum: array<f32, D>; // each element is one lane's alone

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(num_workgroups) nwg: vec3u, @builtin(local_invocation_index) lane: u32) {
  let row = flat(wid, nwg);
  if (row >= p.t * p.heads) { return; }
  let t = row / p.heads;
  let kv = (row % p.heads) * p.kv_heads / p.heads;
  let seen = u32(visible[t]);
  let table = u32(sequence[t]) * p.pages;
  for (var i = lane; i < HEAD / 4u; i += WG) { query[i] = load_q4(row * HEAD + i * 4u) * p.scale; }
  var top = LOWEST;
  var total = 0.0;
  for (var j0 = 0u; j0 < seen; j0 += CHUNK) {
    workgroupBarrier();
    let count = min(CHUNK, seen - j0);
    for (var i = lane; i < count; i += WG) {
      let j = j0 + i;
      let slot = u32(page_table[table + j / p.page_size]) * p.page_size + j % p.page_size;
      let at = (slot * p.kv_heads + kv) * HEAD;
      var s = 0.0;
      for (var c = 0u; c < HEAD / 4u; c++) { s += dot(query[c], load_k4(at + c * 4u)); }
      weights[i] = s;
      rows[i] = at;
    }
    workgroupBarrier();
    var now = top;
    for (var i = 0u; i < count; i++) { now = max(now, weights[i]); }
    workgroupBarrier();
    for (var i = lane; i < count; i += WG) { weights[i] = exp(max(weights[i] - now, -100.0)); }
    workgroupBarrier();
    let fade = exp(max(top - now, -100.0));
    total *= fade;
    for (var i = 0u; i < count; i++) { total += weights[i]; }
    for (var d = lane; d < HEAD; d += WG) {
      var x = sum[d] * fade;
      for (var i = 0u; i < count; i++) { x += weights[i] * load_v(rows[i] + d); }
      sum[d] = x;
    }
    top = now;
  }
  for (var d = lane; d < HEAD; d += WG) { out[row * HEAD + d] = sum[d] / total; }
}
