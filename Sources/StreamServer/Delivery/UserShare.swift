import Reactive
import StreamRuntime

// How a loop is shared. Work that clients cause waits in queues of its user: input that has not been handled, and
// subscriptions that have something to send. Each turn goes round the users and gives each a slice, until the turn's time is
// over; the rest waits for the next. So the cost of what one user sends, over however many connections, is that user's
// own wait. Time is what is shared, as frames differ in what they cost; within a slice the clock is read every few frames.

/// The connections of one user on one event loop, and what of theirs waits for its turn.
final class UserShare {
  let account: UserAccount
  /// Connections on this loop.
  var connectionCount = 0
  /// Connections with input that is to be handled, the one that has waited longest first.
  var input = Fifo<Connection>()
  /// Subscriptions that have something to send, the one that has waited longest first.
  var output = Fifo<StreamSubscription>()
  /// Whether the user stands in the worker's round of those with input, and of those with output.
  var isInInputRound = false
  var isInOutputRound = false
  /// Nanoseconds of the turn that began at `turn` in which input was handled as it came.
  private var spent: UInt64 = 0
  private var turn: UInt64 = 0

  init(_ account: UserAccount) {
    self.account = account
  }

  /// Whether input that comes in the turn that began at `now` is handled at once.
  func hasTime(at now: UInt64) -> Bool {
    if turn != now { (turn, spent) = (now, 0) }
    return spent < Slices.arriving
  }

  func spend(_ nanoseconds: UInt64) { spent += nanoseconds }
}

/// How a turn is shared, in nanoseconds unless said otherwise. Together with what the loop gives to descriptors, posted
/// work and timers, a turn takes some 25 ms when everything is busy.
enum Slices {
  /// Of one connection's input.
  static let connection: UInt64 = 100_000
  /// Frames of one connection's input, before the next one has its turn.
  static let connectionFrames = 32
  /// Frames between two looks at the clock.
  static let frames = 8
  /// Of one user's input that is handled as it comes. What comes after that waits.
  static let arriving: UInt64 = 1_000_000
  /// Of one user's input that has waited, or one user's output, before the next user has its turn.
  static let user: UInt64 = 500_000
  /// Of all input that has waited.
  static let input: UInt64 = 4_000_000
  /// Subscriptions of one connection in its user's queue: connections take turns, however many subscriptions they have.
  static let subscriptions: Int32 = 4
  /// Of all output.
  static let output: UInt64 = 10_000_000
  /// Writes between two looks at the clock.
  static let writes = 16
}
