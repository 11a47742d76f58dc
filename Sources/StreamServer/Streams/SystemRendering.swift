import Dispatch
import Events
import FoundationEssentials
import Reactive
import ReplayLog
import StreamRuntime

/// What the events of a system stream are.
enum SystemContent: Sendable {
  /// One value, as JSON.
  case value(@Sendable (Visibility) -> [UInt8])
  /// The rows of a table by their names: each row that has changed is an event, and so is the end of one.
  case rows(@Sendable (Visibility) -> [String: CatalogueEntry])

  /// The end of a row.
  fileprivate struct Tombstone: Encodable {
    let name: String
    let gone = true
  }

  /// The keys of rows.
  static let key = KeyDefinition(key: ".name", tombstone: ".gone")
}

/// The value of a system stream: computed periodically while the stream has subscriptions, and on request if the last
/// value is too old. A value is appended if it differs from the last one.
///
/// With thousands of streams the computation takes long, so it runs on a separate queue, never on an event loop. The
/// timer follows the rules of any source: without subscribers or credit it does not run.
final class SystemRendering: Sendable {
  /// The streams that the value shows.
  let visibility: Visibility
  private let content: SystemContent
  /// The rows of the last update.
  private let rows = Locked<[String: CatalogueEntry]>([:])
  private let leastAge: @Sendable () -> Duration
  private let queue: DispatchQueue
  private let shared: SharedRendering

  /// The number of values of the current size to which the used part of the ring is limited. The whole ring has space
  /// for the largest value.
  private static let heldValues = 8
  private static let smallValueBytes = 8 << 10

  /// - Parameters:
  ///   - maximumAge: a value of at most this age is shared by all requests.
  ///   - leastAge: a value of a smaller age is not renewed.
  ///   - queue: serial, for updates.
  ///   - content: computed on the queue.
  init(
    _ visibility: Visibility, maximumAge: Duration, leastAge: @escaping @Sendable () -> Duration = { .zero },
    on queue: DispatchQueue, _ content: SystemContent
  ) {
    self.visibility = visibility
    shared = SharedRendering { max(maximumAge, leastAge()) }
    self.leastAge = leastAge
    self.queue = queue
    self.content = content
  }

  /// Whether the stream's newest event is recent enough to answer a request.
  ///
  /// - Parameters:
  ///   - worker: the requester. `updated` is called once for all of its requests.
  ///   - updated: if the event is not recent enough, called on any thread once it is.
  func isCurrent(
    in stream: ServedStream, for worker: AnyObject, orAfter updated: @escaping @Sendable () -> Void
  ) -> Bool {
    switch shared.request(for: worker, completed: { _ in updated() }) {
    case .recent: return true
    case .waits: return false
    case .mustRender:
      queue.async { [self] in
        if let changed = update(for: stream, after: shared.maximumAge) { stream.log.append(changed) }
        shared.finish()
      }
      return false
    }
  }

  /// The value at each tick of a timer, if it has changed. Does not retain the stream.
  func ticks(for stream: ServedStream, everyMilliseconds interval: Int) -> AnyPublisher<EventBatch, StreamFailure> {
    Publishers.timer(interval: .milliseconds(interval))
      .compactMap { [self, weak stream] _ in
        guard let stream else { return nil }
        // The first tick comes with the first subscription, whose request has updated the value already.
        let age = max(.milliseconds(interval) / 2, leastAge())
        return queue.sync { update(for: stream, after: UInt64(max(0, age.wholeNanoseconds))) }
      }
      .setFailureType(to: StreamFailure.self)
      .eraseToAnyPublisher()
  }

  /// Computes the value anew, unless the last update is recent. Called on the queue.
  ///
  /// - Parameter age: the minimum age of the last update, in nanoseconds; below it, there is no new update.
  /// - Returns: the value, or the rows, if they have changed.
  private func update(for stream: ServedStream, after age: UInt64) -> EventBatch? {
    let now = EventLoop.monotonicNow()
    guard !shared.isYounger(than: age) else { return nil }
    let value: [UInt8]
    switch content {
    case .value(let current): value = current(visibility)
    case .rows(let current):
      let changed = changes(to: current(visibility))
      _ = shared.set(nil, begunAt: now)
      return changed.isEmpty ? nil : stream.keying.key(EventBatch(changed))
    }
    let isHeld = value.count <= stream.maximumEventBytes
    if isHeld {
      stream.log.read { storage, _ in storage.usedBytes = Self.heldValues * max(value.count, Self.smallValueBytes) }
    }
    return shared.set(isHeld ? value : nil, begunAt: now) ? [value] : nil
  }

  /// The events of rows that have changed.
  private func changes(to present: [String: CatalogueEntry]) -> [[UInt8]] {
    let former = rows.withLock { rows in
      defer { rows = present }
      return rows
    }
    return former.keys.filter { present[$0] == nil }.sorted().map { Self.json(SystemContent.Tombstone(name: $0)) }
      + present.values.filter { former[$0.name] != $0 }.sorted { $0.name < $1.name }.map { Self.json($0) }
  }

  /// JSON with keys in a fixed order, so that equal values are equal bytes.
  static func json(_ value: some Encodable) -> [UInt8] {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    guard let data = try? encoder.encode(value) else { preconditionFailure("\(value) has no JSON form") }
    return [UInt8](data)
  }
}
