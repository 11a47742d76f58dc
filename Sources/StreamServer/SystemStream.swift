import Dispatch
import FoundationEssentials
import Reactive
import ReplayLog

/// A stream that the server itself feeds: a value that is looked at every so often while somebody listens, and right
/// before somebody subscribes, and appended when it has changed.
///
/// The timer runs under the same rules as any source: without subscribers, or without credit, there is none.
final class SystemStream: Sendable {
  let stream: ServedStream
  private let current: @Sendable () -> [UInt8]
  private let last = Guarded(Look())

  private struct Look {
    var value: [UInt8] = []
    var time = DispatchTime(uptimeNanoseconds: 0)
  }

  /// The ring's room is for the largest value; of it as much is used as so many take of the size that there is.
  private static let heldValues = 8
  private static let smallValueBytes = 8 << 10

  /// - Parameters:
  ///   - interval: between two looks, if nobody subscribes meanwhile.
  ///   - bytes: of its ring, at most; a value that is larger leaves the stream as it is.
  ///   - current: the value now, as JSON. Called on any thread.
  /// - Returns: nil, with `errno` set, when there is no memory for its log.
  init?(
    name: String, description: String, everyMilliseconds interval: Int, bytes: Int,
    current: @escaping @Sendable () -> [UInt8]
  ) {
    let configuration = StreamConfiguration(
      name: name, description: description, source: "system", limits: .init(events: 64, bytes: bytes),
      start: .whileSubscribed(linger: .zero))
    guard let storage = EventLog(name: name, limits: configuration.limits) else { return nil }
    self.current = current
    let refresh = Guarded<(@Sendable () -> Void)?>(nil)
    stream = ServedStream(configuration, storage: storage, refresh: { refresh.withLock { $0 }?() })
    refresh.withLock { $0 = { [weak self] in self?.refresh() } }
    stream.log.setUpstream(
      Publishers.timer(interval: .milliseconds(interval))
        .compactMap { [weak self] _ in
          // The first tick comes with the first subscriber, for whom there was a look already.
          self?.changed(since: .now() - .milliseconds(interval / 2)).map { [$0] }
        }
        .setFailureType(to: StreamFailure.self)
        .eraseToAnyPublisher())
  }

  private func refresh() {
    if let changed = changed() { stream.log.append([changed]) }
  }

  /// - Parameter time: nothing is looked at if it was after this.
  private func changed(since time: DispatchTime = .distantFuture) -> [UInt8]? {
    guard last.withLock({ $0.time <= time }) else { return nil }
    let value = current()
    guard value.count <= stream.configuration.limits.maximumEventBytes else { return nil }
    stream.log.read { storage, _ in storage.usedBytes = Self.heldValues * max(value.count, Self.smallValueBytes) }
    return last.withLock { last in
      last.time = .now()
      guard last.value != value else { return nil }
      last.value = value
      return value
    }
  }

  /// JSON with keys in a fixed order, so that equal values are equal bytes.
  static func json(_ value: some Encodable) -> [UInt8] {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    guard let data = try? encoder.encode(value) else { preconditionFailure("\(value) has no JSON form") }
    return [UInt8](data)
  }
}
