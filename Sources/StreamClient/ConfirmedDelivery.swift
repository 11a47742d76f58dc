import StreamProtocol
import RSocket

/// The name under which a sink publishes, so that it can come back: after a loss of its connection, and, where the name and
/// the numbers stay the same, after its own process has ended. Of publishers of one user under one name the server takes
/// one at a time.
public struct PublisherName: Sendable {
  /// 1 to 48 bytes.
  public let name: String
  /// The number of the first value that the sink is given; the next one has the next number. Values that the stream has
  /// already are taken and not sent.
  public let firstNumber: UInt64
  /// When the connection is made again, and what is reported of that.
  public let reconnect: ReconnectPolicy

  /// - Parameters:
  ///   - name: `nil`: one that nobody else has, for a sink that need not outlive its process.
  ///   - firstNumber: at least 1.
  public init(_ name: String? = nil, firstNumber: UInt64 = 1, reconnect: ReconnectPolicy = ReconnectPolicy()) {
    precondition(firstNumber > 0, "values are numbered from 1")
    self.name = name ?? Self.unique()
    self.firstNumber = firstNumber
    self.reconnect = reconnect
  }

  /// 128 random bits behind the mark of a name that no other run uses: the server forgets it before others.
  private static func unique() -> String {
    "\0" + (0..<2).map { _ in String(UInt64.random(in: 0 ... .max), radix: 36) }.joined(separator: "-")
  }
}

/// What a named publisher has sent and the server has not confirmed, and which number comes next. Knows values and
/// failures; never a connection or a clock.
struct ConfirmedDelivery {
  enum News: Equatable {
    /// The server has told where to continue.
    case greeted(ReconnectPolicy.Report?)
    /// Up to some value all is in the stream.
    case confirmed
    /// What no server of streamd says.
    case nonsense
  }

  let policy: ReconnectPolicy
  private let name: String
  /// Sent, or known to be on the way already, and not confirmed; by number, in order.
  private var unconfirmed: ArraySlice<[UInt8]> = []
  /// Of the first value that was not sent, which is the first that waits.
  private var next: UInt64
  /// Of the value that the server wants first; those before it are not sent.
  private var wanted: UInt64 = 0
  private var confirmed: UInt64 = 0
  private var wasConnected = false
  private var isInterrupted = false
  private var lossCount = 0

  init(_ publisher: PublisherName) {
    (name, next, policy) = (publisher.name, publisher.firstNumber, publisher.reconnect)
  }

  /// The server has all that was sent.
  var isConfirmed: Bool { unconfirmed.isEmpty }

  /// For the request's metadata.
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

  /// Values are on their way.
  mutating func send(_ values: ArraySlice<[UInt8]>) {
    if unconfirmed.isEmpty { unconfirmed = values } else { unconfirmed += values }
    next += UInt64(values.count)
  }

  /// Takes away what waits and the server has.
  mutating func skip(_ waiting: inout ArraySlice<[UInt8]>) {
    guard next < wanted, !waiting.isEmpty else { return }
    let count = Int(min(wanted - next, UInt64(waiting.count)))
    send(waiting.prefix(count))
    waiting = waiting.dropFirst(count)
    dropConfirmed()
  }

  /// The server's words: the number up to which all is in the stream, and at first the one to send next.
  mutating func receive(_ data: [UInt8], _ waiting: inout ArraySlice<[UInt8]>) -> News {
    guard let number = PublishConfirmation(data) else { return .nonsense }
    guard number.confirmed < number.next ?? max(next, wanted) else { return .nonsense }
    let isForgotten = number.confirmed == 0 && confirmed > 0
    confirmed = max(confirmed, number.confirmed)
    lossCount = 0
    guard let first = number.next else {
      dropConfirmed()
      return .confirmed
    }
    guard first >= next else { return .nonsense }
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

  /// What was sent and not confirmed waits again.
  ///
  /// - Parameters:
  ///   - isTurnedAway: the server wanted no connection.
  ///   - fraction: as for ``ReconnectPolicy/delay(afterLosses:fraction:)``.
  /// - Returns: after which time to try again; `nil`: the failure is final.
  mutating func retry(
    after error: StreamError, isTurnedAway: Bool, fraction: Double, _ waiting: inout ArraySlice<[UInt8]>
  ) -> (delay: Duration, news: ReconnectPolicy.Report?)? {
    guard error.isLoss(wasConnected: wasConnected, isTurnedAway: isTurnedAway) else { return nil }
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
  /// Whether a new connection may mend it.
  func isLoss(wasConnected: Bool, isTurnedAway: Bool) -> Bool {
    switch self {
    case .disconnected: wasConnected || !isTurnedAway
    case .cannotConnect: wasConnected
    case .canceled: true
    case .rejected, .invalid, .lagged, .failed, .cutOff: false
    }
  }
}
