/// A publisher that numbers its values, wherever it is connected.
final class NamedPublisher {
  /// What its values name as their maker.
  let name: String
  let peer: Peer
  let stream: String
  /// Whether it ends with its first request, and no other continues it.
  let isOfOneRun: Bool
  /// Up to here all is in the stream.
  private(set) var confirmed: UInt64 = 0
  /// Sent on some connection.
  var sent: UInt64 = 0
  /// Raised when values may be lost or repeated: after a loss of power.
  private(set) var epoch = 0
  weak var connection: Client?

  init(_ name: String, _ peer: Peer, stream: String, isOfOneRun: Bool = false) {
    (self.name, self.peer, self.stream, self.isOfOneRun) = (name, peer, stream, isOfOneRun)
  }

  /// Its name in requests. Source of the first byte: WIRE.md, "Named publishers".
  var bytes: [UInt8] { (isOfOneRun ? [0] : []) + Array(name.utf8) }

  func confirm(_ number: UInt64) {
    require(number <= max(sent, confirmed), "confirmations", "\(name) is told of \(number), and has sent \(sent)")
    confirmed = max(confirmed, number)
  }

  func begin(at number: UInt64) {
    require(
      number > confirmed && number <= sent + 1, "confirmations",
      "\(name) is to continue at \(number), has sent \(sent), and \(confirmed) was confirmed")
  }

  /// Values that it has not heard of may have been lost, or come twice.
  func losePower() {
    epoch += 1
    confirmed = sent
  }
}
