import RSocket
import Reactive

/// One connection on its way from one process to the next: the terms, what is under way, and who stands where.
struct SavedSession: Sendable {
  /// One subscription. Its stream is told by name: the next process has a log of its own for it.
  struct Subscription: Sendable, Equatable {
    let stream: String
    let id: StreamID
    let frames: FrameFormat
    let onLag: LagPolicy
    let cursor: Cursor
    let credit: Subscribers.Demand
    /// `nil`: it does not ask for gaps.
    var gap: Gap?
  }

  /// One channel on which a client publishes; the stream has everything that came on it.
  struct Publication: Sendable, Equatable {
    let id: StreamID
    let stream: String
    /// Values that it may still send.
    let credit: Int
    /// Of a named publisher.
    let named: InboundNumbering?
  }

  var descriptor: CInt
  let number: UInt64
  let machine: ConnectionMachine
  /// Nanoseconds since the client was heard of.
  let silence: UInt64
  /// What was read and not handled.
  let input: [UInt8]
  /// The rest of what the socket took only in part.
  let unsent: [UInt8]
  let subscriptions: [Subscription]
  let publications: [Publication]
}

extension SavedSession.Subscription {
  init(_ subscription: StreamSubscription) {
    self.init(
      stream: subscription.lane.stream.name, id: subscription.id, frames: subscription.frames,
      onLag: subscription.onLag, cursor: subscription.cursor, credit: subscription.credit,
      gap: subscription.tellsGaps ? subscription.gap : nil)
  }
}

extension SavedSession {
  func write(to state: inout StateWriter) {
    state.write(number)
    machine.save(to: &state)
    state.write(silence)
    state.write(input)
    state.write(unsent)
    state.write(UInt32(subscriptions.count))
    for subscription in subscriptions {
      state.write(subscription.stream)
      state.write(subscription.id.rawValue)
      state.write(subscription.frames.ids)
      state.write(subscription.frames.completes)
      state.write(subscription.onLag.rawValue)
      state.write(subscription.cursor.position)
      state.write(UInt64(subscription.cursor.sentBytes))
      state.write(UInt64(subscription.credit.max ?? .max))
      state.write(subscription.gap != nil)
      state.write(subscription.gap?.count ?? 0)
    }
    state.write(UInt32(publications.count))
    for publication in publications {
      state.write(publication.id.rawValue)
      state.write(publication.stream)
      state.write(UInt64(publication.credit))
      state.write(publication.named?.name ?? [])
      for number in [
        publication.named?.next ?? 0, UInt64(publication.named?.demand ?? 0), publication.named?.told ?? 0,
      ] {
        state.write(number)
      }
    }
  }

  init(
    reading state: inout StateReader, descriptor: CInt, limits: ConnectionLimits
  ) throws(StateReader.Broken) {
    self.descriptor = descriptor
    number = try state.number()
    machine = try ConnectionMachine(saved: &state, limits: limits)
    silence = try state.number()
    input = try state.data()
    unsent = try state.data()
    var subscriptions: [Subscription] = []
    for _ in 0..<(try state.number(UInt32.self)) {
      let (stream, id) = (try state.text(), StreamID(try state.number()))
      let frames = FrameFormat(ids: try state.flag(), completes: try state.flag())
      guard let onLag = LagPolicy(rawValue: try state.text()) else { throw .init() }
      let cursor = Cursor(position: try state.number(), sentBytes: Int(clamping: try state.number(UInt64.self)))
      let credit = Int(clamping: try state.number(UInt64.self))
      let (tellsGaps, gap) = (try state.flag(), Gap(count: try state.number()))
      subscriptions.append(
        Subscription(
          stream: stream, id: id, frames: frames, onLag: onLag, cursor: cursor,
          credit: credit == .max ? .unlimited : .max(credit), gap: tellsGaps ? gap : nil))
    }
    self.subscriptions = subscriptions
    var publications: [Publication] = []
    for _ in 0..<(try state.number(UInt32.self)) {
      let (id, stream) = (StreamID(try state.number()), try state.text())
      let credit = Int(clamping: try state.number(UInt64.self))
      let name = try state.data()
      let (next, demand, told): (UInt64, UInt64, UInt64) = (try state.number(), try state.number(), try state.number())
      guard name.count <= PublisherEntry.maximumNameBytes, name.isEmpty || (1...1 << 62).contains(next) else {
        throw .init()
      }
      let named =
        name.isEmpty
        ? nil
        : InboundNumbering(name: name, next: next, demand: UInt32(clamping: demand), told: told)
      publications.append(Publication(id: id, stream: stream, credit: credit, named: named))
    }
    self.publications = publications
    try check()
  }

  /// - Throws: for what no server can have saved.
  private func check() throws(StateReader.Broken) {
    let ids = subscriptions.map(\.id) + publications.map(\.id)
    guard number <= Self.numberLimit, Set(ids).count == ids.count, ids.allSatisfy(machine.isLive),
      publications.allSatisfy({ $0.credit <= Self.creditLimit })
    else { throw .init() }
  }

  /// Connections are counted from 1 on: a greater number is none.
  private static let numberLimit = UInt64.max / 2
  /// As on the wire: more is granted to no publisher.
  private static let creditLimit = 0x7FFF_FFFF
}
