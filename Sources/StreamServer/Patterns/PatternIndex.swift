import StreamProtocol
import StreamRuntime

/// The readers of patterns on one loop, so that a new stream is compared with few of them: those of equal patterns once, and
/// only patterns with a beginning that the name has.
struct PatternIndex {
  private struct Group {
    let pattern: NamePattern
    var readers: [ObjectIdentifier: PatternReader] = [:]
  }

  /// By the beginning of names, and the text.
  private var groups: [[UInt8]: [String: Group]] = [:]
  /// The number of beginnings with each length.
  private var lengths: [Int: Int] = [:]

  var isEmpty: Bool { groups.isEmpty }

  mutating func insert(_ reader: PatternReader) {
    let (pattern, prefix) = (reader.pattern, reader.pattern.prefix)
    if groups[prefix] == nil { lengths[prefix.count, default: 0] += 1 }
    groups[prefix, default: [:]][pattern.text, default: Group(pattern: pattern)].readers[ObjectIdentifier(reader)] =
      reader
  }

  mutating func remove(_ reader: PatternReader) {
    let (text, prefix) = (reader.pattern.text, reader.pattern.prefix)
    guard groups[prefix]?[text]?.readers.removeValue(forKey: ObjectIdentifier(reader)) != nil else { return }
    if groups[prefix]?[text]?.readers.isEmpty == true { groups[prefix]?[text] = nil }
    guard groups[prefix]?.isEmpty == true else { return }
    groups[prefix] = nil
    lengths[prefix.count] = lengths[prefix.count].flatMap { $0 > 1 ? $0 - 1 : nil }
  }

  /// The readers whose patterns fit a name.
  func readers(of name: String) -> [PatternReader] {
    let bytes = Array(name.utf8)
    return lengths.keys.filter { $0 <= bytes.count }.flatMap { length in
      (groups[Array(bytes.prefix(length))] ?? [:]).values.filter { $0.pattern.fits(name) }.flatMap(\.readers.values)
    }
  }
}

/// A list of streams that readers share: to take one from it changes no array, which would copy it.
struct PresentStreams {
  private let streams: [ServedStream]
  private var left: Int

  init(_ streams: [ServedStream]) { (self.streams, left) = (streams, streams.count) }

  mutating func next() -> ServedStream? {
    guard left > 0 else { return nil }
    left -= 1
    return streams[left]
  }
}

// The streams that come to a loop, and the members that leave it.

extension Worker {
  /// The number of streams and members that one turn takes.
  private static let patternSlice = 64

  /// How long the list of the streams is shared by the readers that begin. To make one takes 5 ms for 100,000 streams.
  private static let listTime = Duration.milliseconds(100)

  /// Lists a reader, for streams that come from now on.
  /// - Returns: the present streams. Some may be gone, or come again as later ones.
  func watch(for reader: PatternReader) -> [PresentStreams] {
    loop.assertOnLoop()
    patterns.insert(reader)
    if let present { return [PresentStreams(present), PresentStreams(recent)] }
    let all = streams.watch(by: self) { [weak self] in
      guard let self else { return }
      loop.execute { [weak self] in self?.takeArrivals() }
    }
    present = all
    _ = loop.schedule(after: Self.listTime) { [weak self] in self?.dropList() }
    return [PresentStreams(all)]
  }

  private func dropList() { (present, recent) = (nil, []) }

  func unwatch(for reader: PatternReader) {
    loop.assertOnLoop()
    patterns.remove(reader)
    if patterns.isEmpty {
      arrived = []
      dropList()
      streams.unwatch(by: self)
    }
  }

  /// Whether streams have come that were not offered to readers.
  var hasArrivals: Bool { !arrived.isEmpty || streams.hasArrivals(for: self) }

  /// Offers streams that have come to the readers whose patterns fit them.
  func takeArrivals(all: Bool = false) {
    loop.assertOnLoop()
    guard all || !isPaused else { return }
    let new = streams.takeArrivals(for: self)
    arrived += new
    if present != nil { recent += new }
    for _ in 0..<(all ? .max : Self.patternSlice) {
      guard let stream = arrived.popLast() else { return }
      offer(stream, from: stream.firstID.load(ordering: .relaxed))
    }
    if !arrived.isEmpty { loop.execute { [weak self] in self?.takeArrivals() } }
  }

  /// Offers a stream to the readers whose patterns fit it.
  /// - Parameter position: where they begin.
  func offer(_ stream: ServedStream, from position: UInt64) {
    guard !patterns.isEmpty, stream.rendering == nil else { return }
    for reader in patterns.readers(of: stream.name) { reader.offer(stream, from: position) }
  }

  /// Removes members whose reader has ended from their lanes, over several turns: that takes about 5 µs for each.
  func leave(_ members: some Sequence<StreamSubscription>) {
    loop.assertOnLoop()
    let isFirst = leaving.isEmpty
    leaving += members
    if isFirst { leaveNext() }
  }

  private func leaveNext() {
    leave(atMost: Self.patternSlice)
    if leaving.isEmpty {
      leaving = []
      return
    }
    loop.execute { [weak self] in self?.leaveNext() }
  }

  func leave(atMost count: Int) {
    for _ in 0..<count {
      guard let member = leaving.popLast() else { return }
      member.lane.remove(member)
      release(member.lane)
    }
  }
}
