#pragma once

#include <cstdint>

#include "optimized/cpu/layout.h"
#include "reference/sequence.h"

/// The recurrent family in fp32, written again as plainly as the equations, with a virtual function for each
/// stage, so that a mutant can override one. Rounding points are those of Contract; of the ways to invert a
/// triangle it has only substitution.
namespace samestate::mutants {

using Grid = Matrix<float>;
using Column = Vector<float>;

/// x rounded to `format`.
[[nodiscard]] Grid rounded(Grid x, Format format);

/// One call. The stages below process one head of one sequence, `head_`.
class Evaluator {
 public:
  Evaluator(const cpu::System& system, const Arguments& arguments, const Contract& contract);
  virtual ~Evaluator() = default;
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  [[nodiscard]] Outcome run();

  /// The contract that a call is evaluated under.
  [[nodiscard]] static Contract kept(const Contract& promised) { return promised; }

 protected:
  virtual void evaluate() = 0;
  /// True if this evaluator keeps the contract's rounding points.
  [[nodiscard]] virtual bool promises() const;

  // Where the tensors of the call are.
  [[nodiscard]] virtual bool computes(std::int64_t n, std::int64_t h) const;  ///< if false, zeros are written
  [[nodiscard]] virtual cpu::Head locate(std::int64_t n, std::int64_t h) const;
  virtual void outside() const {}  ///< writes the rows of o that belong to no sequence
  [[nodiscard]] virtual Grid initial_state();
  virtual void store_state(const Grid& S);
  virtual void store_row(Index t, const Grid& o);  ///< o [1, dv]

  // Arithmetic that both forms share.
  virtual void normalise(Column& x) const;  ///< x (sum x^2 + 1e-6)^-1/2
  [[nodiscard]] virtual float gate(float g) const = 0;
  [[nodiscard]] virtual float strength(float beta) const { return beta; }
  [[nodiscard]] virtual float exponential(float x) const;
  [[nodiscard]] virtual float scale() const { return arguments_.scale; }
  virtual void readout(Grid& o) const { o *= scale(); }
  [[nodiscard]] virtual Grid multiply(const Grid& a, const Grid& b) const { return a * b; }
  [[nodiscard]] virtual Grid settled(const Grid& S) const { return rounded(S, contract_.state); }

  [[nodiscard]] virtual float given_gate(Index t) const { return *head_.g.row(t); }
  [[nodiscard]] virtual float given_strength(Index t) const { return *head_.beta.row(t); }
  [[nodiscard]] virtual Column key(const cpu::Rows<const float>& x, Index t) const;
  [[nodiscard]] virtual Column value(Index t) const;
  [[nodiscard]] bool packed() const { return arguments_.cu_seqlens.present(); }
  [[nodiscard]] bool decays() const { return arguments_.g.present(); }

  const cpu::System& system_;
  const Arguments& arguments_;
  const Contract& contract_;
  cpu::Sizes sizes_;
  std::int64_t n_ = 0, h_ = 0;  ///< current sequence and value head
  cpu::Head head_;
  Grid S_;  ///< [dk, dv]
};

/// S' = e^g S, u = beta (v - S'^T k) or v, S = S' + k u^T, o = scale S^T q.
class Recurrent : public Evaluator {
 public:
  using Evaluator::Evaluator;
  static constexpr const char* form = "recurrent";

 protected:
  void evaluate() override;
  [[nodiscard]] float gate(float g) const override { return g; }
  virtual void load();
  virtual void decay();
  virtual void correct();
  virtual void write();
  virtual void read();
  /// S^T k as a row [1, dv].
  [[nodiscard]] Grid recall(const Column& k) const { return multiply(k.transpose(), S_); }

  Index t_ = 0;
  Column q_, k_, v_;
  float alpha_ = 1.0F, beta_ = 1.0F;
  Grid u_, o_;  ///< [1, dv]
};

/// The chunked form; the matrices have the names that Contract uses.
class Chunked : public Evaluator {
 public:
  using Evaluator::Evaluator;
  static constexpr const char* form = "chunked";

 protected:
  void evaluate() override;
  [[nodiscard]] float gate(float g) const override { return cpu::clamped_decay(g); }
  /// Loads tokens [first_, first_ + valid_) into rows [0, L_).
  virtual void load();
  virtual void cumulate();                                     ///< G_ from g_
  [[nodiscard]] virtual float factor(Index i, Index j) const;  ///< e^{G_i - G_j}, j <= i
  [[nodiscard]] virtual Index end_row() const { return L_ - 1; }
  virtual void factors();   ///< E_, exp_G_, to_end_, carried_
  virtual void triangle();  ///< A_
  virtual void invert();    ///< T_
  [[nodiscard]] virtual float value_factor(Index i) const { return beta_(i); }  ///< the factor of v_i in U
  [[nodiscard]] virtual float key_factor(Index i) const { return beta_(i); }  ///< the factor of e^G k_i in W
  virtual void correct();                                                     ///< V_new_
  virtual void scores();                                                      ///< P_
  virtual void outputs();                                                     ///< O_, without the scale
  virtual void update();                                                      ///< S_

  /// Appends rows of zeros, with gates and strengths 0, up to `rows`.
  void pad(Index rows);
  void store_outputs();
  [[nodiscard]] bool last() const { return first_ + valid_ == head_.tokens; }

  Index first_ = 0, valid_ = 0, L_ = 0;
  Grid Q_, K_, V_, E_, A_, T_, V_new_, P_, O_;
  Column g_, G_, beta_, exp_G_, to_end_;
  float carried_ = 1.0F;
  Grid operand_;  ///< the state as operand of products
};

}  // namespace samestate::mutants
