// One rank's work in a collective, as data: a Schedule of the reference, lowered (lower.h). One
// kernel runs any program (run_program.h).
//
// A program is a row of phases with an exchange between each two (transport/flags.h). In a
// phase a rank works through its steps, in order; the wires that they send arrive with the exchange
// behind the phase. A step is the same work on every tile of one chunk:
//
//     operands, added up  ->  sum  ->  stored in the output
//                              |
//                              +-> encoded once  ->  sent to ranks, to itself to keep it
//                                       |
//                                       +-> decoded, stored in the output
//
// or the bytes of a wire, passed on as they came.
#pragma once

#include <cstdint>

namespace arlab::kernels {

inline constexpr int kMaxProgramRanks = 8;
/// Limits of a program of one rank. Programs are arguments of kernels, which may have 4 KiB in
/// all.
inline constexpr int kMaxSteps = 128;
inline constexpr int kMaxOperands = 256;
inline constexpr int kMaxPhases = 48;
/// Most chunks of the tensor.
inline constexpr int kMaxChunks = 64;

/// Where a step finds a value of its chunk.
class Operand {
 public:
  enum Source : unsigned {
    input,   ///< this rank's input, at the chunk's place
    output,  ///< a sum that waits in the output, at the place of chunk index()
    wire,    ///< a wire from rank(), the index()th of those that it sent in one exchange
  };

  constexpr Operand() = default;
  static constexpr Operand of_input() { return Operand(input, 0, 0, 0); }
  static constexpr Operand in_output(unsigned place) { return Operand(output, 0, 0, place); }
  static constexpr Operand in_slot(unsigned age, unsigned rank, unsigned number) {
    return Operand(wire, age, rank, number);
  }

  constexpr Source source() const { return static_cast<Source>(bits_ & 3); }
  /// When a wire came: 0 with the last exchange, 1 with the one before.
  constexpr unsigned age() const { return bits_ >> 2 & 3; }
  constexpr unsigned rank() const { return bits_ >> 4 & 15; }
  constexpr unsigned index() const { return bits_ >> 8; }

 private:
  constexpr Operand(Source source, unsigned age, unsigned rank, unsigned index)
      : bits_(static_cast<std::uint16_t>(source | age << 2 | rank << 4 | index << 8)) {}

  std::uint16_t bits_ = 0;
};

struct Step {
  static constexpr std::uint32_t kNowhere = 0xFFFFFFFF;

  std::uint16_t first_operand = 0;
  std::uint8_t operands = 0;
  std::uint8_t chunk = 0;
  std::uint8_t place = 0;      ///< the chunk at whose place the output gets what is stored
  std::uint8_t encodings = 0;  ///< those behind its values: EncodeContext::step
  bool from_zero : 1 = false;  ///< the sum starts from +0, else from the first operand
  bool encodes : 1 = false;    ///< the sum
  bool passes_on : 1 = false;  ///< the wire that is the only operand
  bool stores_sum : 1 = false;
  bool stores_decoded : 1 = false;  ///< the encoded sum, decoded
  bool copies_input : 1 = false;    ///< to where it was: nothing to do in place
  /// Four bits per rank: the number that the wire has among those of this exchange from this rank
  /// to that one; 15 where it is not sent.
  std::uint32_t to = kNowhere;
};

struct Program {
  std::uint16_t phases = 0;
  /// The first step of each phase; that of the phase behind the last is the number of steps.
  std::uint8_t first_step[kMaxPhases + 1] = {};
  /// In each phase, where steps begin that encode (first) or pass on. Those before store what has
  /// arrived.
  std::uint8_t first_send[kMaxPhases] = {};
  Operand operand[kMaxOperands] = {};
  Step step[kMaxSteps] = {};

  int steps() const { return first_step[phases]; }
};

}  // namespace arlab::kernels
