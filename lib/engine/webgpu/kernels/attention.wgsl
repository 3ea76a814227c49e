//! typed q, k, v
// Causal attention within documents, a lane a query, with a running softmax (Milakov & Gimelshein 2018; Dao et al. 2022). All lanes walk the
// same keys, so keys and values are read once for the workgroup. Four keys at a time share one rescaling.
struct P { d: u32, t: u32, heads: u32, kv_heads: u32, scale: f32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read> q: array<TYPE_q>;
@group(0) @binding(2) var<storage, read> k: array<TYPE_k>;
@group(0) @binding(3) var<storage, read> v: array<TYPE_v>;
@group(0) @binding(4) var<storage, read> doc_start: array<i32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;
@group(0) @binding(6) var<storage, read_write> lse: array<f32>;

var<PER_LANE> query: array<vec4f, D / 4u * SPREAD>;
var<PER_LANE> sum: array<vec4f, D / 4u * SPREAD>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3u, @builtin(local_invocation_index) lane: u32) {
  let h = wid.y;
  let kv = h * p.kv_heads / p.heads;
  let first = wid.x * WG;
  let t = first + lane;
  let tq = min(t, p.t - 1u);
  let start = u32(doc_start[tq]);
  let low = u32(doc_start[first]);
  let high = min(first + WG, p.t);
  let q_base = (tq * p.heads + h) * HEAD;
  for (var i = 0u; i < HEAD / 4u; i++) {
    query[mine(i, lane)] = load_q4(q_base + i * 4u) * p.scale;
    sum[mine(i, lane)] = vec4f(0.0);
  }
  var top = LOWEST;
  var total = 0.0;
  for (var j = low; j < high; j += 4u) {
    let key = vec4u(j, j + 1u, j + 2u, j + 3u);
    let at = (min(key, vec4u(p.t - 1u)) * p.kv_heads + kv) * HEAD;
    var s = vec4f(0.0);
    for (var i = 0u; i < HEAD / 4u; i++) {
      let x = query[mine(i, lane)];
      s += vec4f(dot(x, load_k4(at.x + i * 4u)), dot(x, load_k4(at.y + i * 4u)), dot(x, load_k4(at.z + i * 4u)), dot(x, load_k4(at.w + i * 4u)));
    }
    let seen = (key >= vec4u(start)) & (key <= vec4u(tq));
    s = select(vec4f(LOWEST), s, seen);
    let now = max(top, max(max(s.x, s.y), max(s.z, s.w)));
    let fade = exp(max(top - now, -100.0));
    let e = select(vec4f(0.0), exp(max(s - now, vec4f(-100.0))), seen);
    total = total * fade + e.x + e.y + e.z + e.w;
    for (var i = 0u; i < HEAD / 4u; i++) {
      let x = sum[mine(i, lane)] * fade;
      sum[mine(i, lane)] = x + e.x * load_v4(at.x + i * 4u) + e.y * load_v4(at.y + i * 4u) + e.z * load_v4(at.z + i * 4u) + e.w * load_v4(at.w + i * 4u);
    }
    top = now;
  }
  if (t >= p.t) { return; }
  for (var i = 0u; i < HEAD / 4u; i++) {
    let o = sum[mine(i, lane)] / total;
    for (var c = 0u; c < 4u; c++) { out[q_base + i * 4u + c] = o[c]; }
  }
  lse[t * p.heads + h] = top + log(total);
}
