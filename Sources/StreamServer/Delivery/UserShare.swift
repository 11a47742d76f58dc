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
  /// The time of its input that is processed on arrival.
  var arrival = ArrivalTime()

  init(_ account: UserAccount) {
    self.account = account
  }
}

/// Time of input that is processed on arrival: one slice for the descriptors that the loop has found ready at once,
/// also if they are delivered in several turns.
struct ArrivalTime {
  private var spent: UInt64 = 0
  private var wait: UInt64 = 0

  /// - Parameter wait: the loop's `waitCount`.
  mutating func isLeft(in wait: UInt64) -> Bool {
    if self.wait != wait { (self.wait, spent) = (wait, 0) }
    return spent < Slices.arriving
  }

  mutating func spend(_ nanoseconds: UInt64) { spent += nanoseconds }
}

/// Users with waiting work, in the order of their turns: those of each standing take turns among themselves, and the
/// standings take turns. However many addresses hosts have, another user waits for one slice of theirs.
struct UserRound<User> {
  private var waiting = ClientUser.Standing.allCases.map { _ in Fifo<User>() }
  /// The standing that was served last.
  private var last = 0

  var isEmpty: Bool { waiting.allSatisfy(\.isEmpty) }

  mutating func append(_ user: User, _ standing: ClientUser.Standing) { waiting[standing.rawValue].append(user) }

  mutating func popFirst() -> User? {
    for _ in waiting.indices {
      last = (last + 1) % waiting.count
      if let user = waiting[last].popFirst() { return user }
    }
    return nil
  }
}

extension UserRound<UserShare> {
  mutating func append(_ share: UserShare) { append(share, share.account.standing) }
}

/// The slices of a turn, in nanoseconds unless stated otherwise. Together with the loop's slices for descriptors,
/// posted work and timers, a turn takes about 25 ms when everything is busy.
enum Slices {
  /// For one connection's input.
  static let connection: UInt64 = 100_000
  /// Frames of one connection's input before the next connection's turn.
  static let connectionFrames = 32
  /// For one user's input that is processed on arrival, or that of all hosts. Further input waits.
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
