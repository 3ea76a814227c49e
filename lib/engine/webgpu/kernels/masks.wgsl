// Token masks: mask_row [rows] names a row of mask_bits [R, words], or −1 for none.
fn allowed(row: u32, token: u32) -> bool {
  if (!MASKED) { return true; }
  let r = mask_row[row];
  return r < 0 || ((mask_bits[u32(r) * p.words + token / 32u] >> (token % 32u)) & 1u) == 1u;
}
