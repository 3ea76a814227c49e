/** Value of an arithmetic formula (+ − * / and brackets), or null where it is not one. API-Bank's Calculator is this pure function. */
export function calculate(formula: string): number | null {
  const tokens = formula.match(/\d+(?:\.\d+)?|\.\d+|[-+*/()]/g) ?? [];
  if (tokens.join("") !== formula.replace(/\s+/g, "")) return null;
  let at = 0;
  const primary = (depth: number): number | null => {
    if (depth > 100) return null;
    const token = tokens[at++];
    if (token === undefined) return null;
    if (token === "-" || token === "+") {
      const value = primary(depth + 1);
      return value === null ? null : token === "-" ? -value : value;
    }
    if (token === "(") {
      const value = sum(depth + 1);
      return tokens[at++] === ")" ? value : null;
    }
    const value = Number(token);
    return Number.isNaN(value) ? null : value;
  };
  const binary =
    (next: (depth: number) => number | null, operators: string) =>
    (depth: number): number | null => {
      let left = next(depth);
      while (left !== null && at < tokens.length && operators.includes(tokens[at]!)) {
        const operator = tokens[at++];
        const right = next(depth);
        if (right === null) return null;
        left =
          operator === "+"
            ? left + right
            : operator === "-"
              ? left - right
              : operator === "*"
                ? left * right
                : left / right;
      }
      return left;
    };
  const product = binary(primary, "*/");
  const sum: (depth: number) => number | null = binary(product, "+-");
  const value = sum(0);
  return value !== null && at === tokens.length && Number.isFinite(value) ? value : null;
}
