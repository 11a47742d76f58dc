import StreamProtocol
import RSocket

/// The name under which a sink publishes. A named sink can resume after the loss of its connection and, if name and
/// numbers stay the same, after a restart of its own process. The server accepts one publisher at a time for each user
/// and name.
public struct PublisherName: Sendable {
  /// The name, 1 to 48 bytes.
  public let name: String
  /// The number of the first value that the sink receives; numbers rise by 1. Values that the stream already has are
  /// accepted and not sent.
  public let firstNumber: UInt64
  /// The policy and the reports of reconnecting.
  public let reconnect: ReconnectPolicy

  /// - Parameters:
  ///   - name: `nil`: a unique name, for a sink that need not outlive its process.
  ///   - firstNumber: at least 1.
  ///   - reconnect: the times of attempts to reconnect, and the receiver of reports.
  public init(_ name: String? = nil, firstNumber: UInt64 = 1, reconnect: ReconnectPolicy = ReconnectPolicy()) {
    precondition(firstNumber > 0, "values are numbered from 1")
    self.name = name ?? Self.unique()
    self.firstNumber = firstNumber
    self.reconnect = reconnect
  }

  /// Returns 128 random bits behind the prefix of a name that no other run uses: the server forgets such names first.
  private static func unique() -> String {
    "\0" + (0..<2).map { _ in String(UInt64.random(in: 0 ... .max), radix: 36) }.joined(separator: "-")
  }
}

/// The sent and unconfirmed values of a named publisher, and the next number. Handles values and failures, but holds no
/// connection and no clock.
struct ConfirmedDelivery {
  enum News: Equatable {
    /// The server has sent the number at which to continue.
    case greeted(ReconnectPolicy.Report?)
    /// The server has confirmed all values up to a number: they are in the stream.
    case confirmed
    /// The reply is not valid for a streamd server.
    case invalid
  }

  let policy: ReconnectPolicy
  private let name: String
  /// The values that were sent, now or by an earlier connection, and are not confirmed; in the order of their numbers.
  private var unconfirmed: ArraySlice<[UInt8]> = []
  /// The number of the first value that was not sent: the first of the waiting values.
  private var next: UInt64
  /// The number of the first value that the server requests; earlier values are not sent.
  private var wanted: UInt64 = 0
  private var confirmed: UInt64 = 0
  private var wasConnected = false
  private var isInterrupted = false
  private var lossCount = 0

  init(_ publisher: PublisherName) {
    (name, next, policy) = (publisher.name, publisher.firstNumber, publisher.reconnect)
  }

  /// Whether the server has confirmed every value that was sent.
  var isConfirmed: Bool { unconfirmed.isEmpty }

  /// The entry for the request's metadata.
  /// - Throws: `.invalid` for a name that is empty or too long.
  var entry: PublisherEntry {
    get throws(StreamError) {
      do throws(RoutingError) {
        return try PublisherEntry(name: Array(name.utf8), firstNumber: next)
      } catch {
        throw .invalid(error.message)
      }
    }
  }

  /// Records values as sent.
  mutating func send(_ values: ArraySlice<[UInt8]>) {
    if unconfirmed.isEmpty { unconfirmed = values } else { unconfirmed += values }
    next += UInt64(values.count)
  }

  /// Removes the waiting values that the server already has.
  mutating func skip(_ waiting: inout ArraySlice<[UInt8]>) {
    guard next < wanted, !waiting.isEmpty else { return }
    let count = Int(min(wanted - next, UInt64(waiting.count)))
    send(waiting.prefix(count))
    waiting = waiting.dropFirst(count)
    dropConfirmed()
  }

  /// Handles a message of the server: the number up to which all values are in the stream and, in the first message,
  /// the number to send next.
  mutating func receive(_ data: [UInt8], _ waiting: inout ArraySlice<[UInt8]>) -> News {
    guard let number = PublishConfirmation(data) else { return .invalid }
    guard number.confirmed < number.next ?? max(next, wanted) else { return .invalid }
    let isForgotten = number.confirmed == 0 && confirmed > 0
    confirmed = max(confirmed, number.confirmed)
    lossCount = 0
    guard let first = number.next else {
      dropConfirmed()
      return .confirmed
    }
    guard first >= next else { return .invalid }
    wanted = first
    skip(&waiting)
    wasConnected = true
    defer { isInterrupted = false }
    return .greeted(isInterrupted ? isForgotten ? .forgotten : .resumed(missing: nil) : nil)
  }

  private mutating func dropConfirmed() {
    let first = next - UInt64(unconfirmed.count)
    guard confirmed >= first else { return }
    unconfirmed = unconfirmed.dropFirst(Int(min(confirmed - first + 1, UInt64(unconfirmed.count))))
  }

  /// Moves the values that were sent and not confirmed back to the waiting ones.
  ///
  /// - Parameters:
  ///   - isRefused: whether the server refused the connection.
  ///   - fraction: as for ``ReconnectPolicy/delay(afterLosses:fraction:)``.
  /// - Returns: the delay before the next attempt; `nil`: the failure is final.
  mutating func retry(
    after error: StreamError, isRefused: Bool, fraction: Double, _ waiting: inout ArraySlice<[UInt8]>
  ) -> (delay: Duration, news: ReconnectPolicy.Report?)? {
    guard policy.retries(after: error, wasConnected: wasConnected, isRefused: isRefused) else { return nil }
    next -= UInt64(unconfirmed.count)
    waiting = unconfirmed + waiting
    unconfirmed = []
    wasConnected = true
    lossCount += 1
    defer { isInterrupted = true }
    return (policy.delay(afterLosses: lossCount, fraction: fraction), isInterrupted ? nil : .lost(error))
  }
}

extension StreamError {
  /// Whether the same request may succeed, later or on a new connection.
  func isLoss(wasConnected: Bool, isRefused: Bool) -> Bool {
    switch self {
    case .disconnected: wasConnected || !isRefused
    case .cannotConnect: wasConnected
    case .canceled(_, let reason): reason?.retry != .never
    case .cutOff(_, let reason): reason?.retry == .reconnect
    case .rejected, .invalid, .lagged, .failed: false
    }
  }
}
