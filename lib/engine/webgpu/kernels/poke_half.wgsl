// Sets the low half of one word: the last element of a packed tensor of odd size, whose neighbour belongs to another tensor.
struct P { word: u32, bits: u32 }
@group(0) @binding(0) var<uniform> p: P;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;

@compute @workgroup_size(1)
fn main() { out[p.word] = (out[p.word] & 0xffff0000u) | p.bits; }
