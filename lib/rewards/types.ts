/** The rewards' data (method.md section 4). */

/** A named number with the rule and the reason, for metrics and the browser. */
export interface RewardTerm {
  /** E.g. "R_outcome". */
  name: string;
  /** The paper's symbol, e.g. "R_outcome". */
  symbol: string;
  value: number;
  reason: string;
  parts?: RewardTerm[];
}

/** The three channels, kept apart until the advantages (method.md section 4). */
export interface ChannelRewards {
  trajectory: number;
  phase: number;
  format: number;
  terms: RewardTerm[];
}
