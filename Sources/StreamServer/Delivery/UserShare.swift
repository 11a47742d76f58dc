import Reactive
import StreamRuntime

// The sharing of a loop. Work caused by clients waits in queues of its user: unprocessed input, and subscriptions with
// events to send. Each turn iterates over the users and gives each a slice, until the turn's time is over; the rest
// waits for the next turn. The input of one user, over any number of connections, therefore delays that user's own
// work. Time is shared, because the costs of frames differ; the clock is read after each frame and each write.

/// The connections of one user on one event loop, and their waiting work.
final class UserShare {
  let account: UserAccount
  /// Connections on this loop.
  var connectionCount = 0
  /// Connections with unprocessed input, in the order of waiting.
  var input = Fifo<Connection>()
  /// Subscriptions with events to send, in the order of waiting.
  var output = Fifo<StreamSubscription>()
  /// Whether the user is in the worker's round of users with input, and with output.
  var isInInputRound = false
  var isInOutputRound = false
  /// Nanoseconds of the turn that began at `turn` in which input was processed on arrival.
  private var spent: UInt64 = 0
  private var turn: UInt64 = 0

  init(_ account: UserAccount) {
    self.account = account
  }

  /// Whether input in the turn that began at `now` is processed on arrival.
  func hasTime(at now: UInt64) -> Bool {
    if turn != now { (turn, spent) = (now, 0) }
    return spent < Slices.arriving
  }

  func spend(_ nanoseconds: UInt64) { spent += nanoseconds }
}

/// The slices of a turn, in nanoseconds unless stated otherwise. Together with the loop's slices for descriptors,
/// posted work and timers, a turn takes about 25 ms when everything is busy.
enum Slices {
  /// For one connection's input.
  static let connection: UInt64 = 100_000
  /// Frames of one connection's input before the next connection's turn.
  static let connectionFrames = 32
  /// For one user's input that is processed on arrival. Further input waits.
  static let arriving: UInt64 = 1_000_000
  /// For one user's waiting input, or one user's output, before the next user's turn.
  static let user: UInt64 = 500_000
  /// For all waiting input.
  static let input: UInt64 = 4_000_000
  /// Maximum subscriptions of one connection in its user's queue, so that connections take turns.
  static let subscriptions: Int32 = 4
  /// For all output.
  static let output: UInt64 = 10_000_000
}
