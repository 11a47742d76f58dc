import Glibc
import StreamRuntime
import StreamServer
import Systemd

/// Hands client connections from one process of the service to the next. The service manager stores their descriptors
/// in parcels, and their state separately.
///
/// The manager keeps both until the restoring process begins to serve the connections. A process that ends before that
/// has read and written nothing, and the next one finds the same state.
enum ConnectionHandover {
  /// A parcel: the reading end of a `DescriptorParcel`, and the content of its name. The manager returns the newest
  /// parcel first. It may have dropped one in the middle for lack of room.
  private struct Parcel {
    let end: CInt
    /// The index of the parcel's first connection.
    let first: Int
    let perMessage: Int

    var name: String { "connections-by-\(perMessage)-at-\(first)" }

    func copy(_ each: (_ index: Int, _ descriptor: CInt) -> Void) {
      DescriptorParcel.copy(from: end, perMessage: perMessage) { each(first + $0, $1) }
    }
  }

  /// The parcel with a stored name; nil: the name is another one. Names of earlier versions are `connections-at-0`, and
  /// `connections` alone, with as many connections in each message as possible.
  private static func parcel(_ stored: PassedDescriptors.Stored) -> Parcel? {
    let parts = stored.name.split(separator: "-", omittingEmptySubsequences: false)
    let numbers = parts.compactMap { Int($0) }.filter { (0..<1 << 32).contains($0) }
    let most = DescriptorParcel.mostPerMessage
    let (first, perMessage): (Int, Int)
    switch (parts.filter { Int($0) == nil }, numbers.count) {
    case (["connections"], 0): (first, perMessage) = (0, most)
    case (["connections", "at"], 1): (first, perMessage) = (numbers[0], most)
    case (["connections", "by", "at"], 2): (first, perMessage) = (numbers[1], numbers[0])
    case _: return nil
    }
    guard (1...most).contains(perMessage) else { return nil }
    return Parcel(end: stored.descriptor, first: first, perMessage: perMessage)
  }

  private static let stateName = "connections-state"
  /// From this number of parcels on, messages are as large as possible, because each parcel takes a descriptor of the
  /// manager.
  private static let manyParcels = 32
  /// The number of processes that may end before they serve the connections. The connections may be the cause, and are
  /// then closed.
  private static let attemptLimit = 3

  /// Stores the connections in the manager, and the events that wait for room in their streams. Connections without
  /// room get CANCELED and are closed.
  ///
  /// - Parameter room: the number of descriptors that the manager still accepts: one for the state, and one for each
  ///   parcel.
  static func save(_ saved: SavedConnections, with manager: ServiceManager, room: Int, _ journal: Journal) {
    let (parcels, count) = pack(saved.descriptors, room: room, journal)
    defer { for parcel in parcels { LocalSocket.close(parcel.end) } }
    saved.cancel(from: count)
    guard room > 0 else { return }
    do throws(SystemError) {
      let state = try MemoryFile.make(saved.state(ofFirst: count), name: stateName)
      defer { close(state) }
      manager.store(state, as: stateName)
      for parcel in parcels { manager.store(parcel.end, as: parcel.name) }
    } catch {
      journal.write(.limitReached, .warning, "connections are closed, as they cannot be handed over: \(error)")
      saved.cancel(from: 0)
    }
  }

  private static func pack(
    _ descriptors: [CInt], perMessage: Int
  ) throws(SystemError) -> (parcels: [Parcel], count: Int) {
    let (ends, count) = try DescriptorParcel.pack(descriptors, perMessage: perMessage)
    return (ends.map { Parcel(end: $0.end, first: $0.first, perMessage: perMessage) }, count)
  }

  /// - Returns: the parcels, which the caller closes, and the number of connections in them; none if one has no room.
  private static func pack(
    _ descriptors: [CInt], room: Int, _ journal: Journal
  ) -> (parcels: [Parcel], count: Int) {
    guard !descriptors.isEmpty else { return ([], 0) }
    do throws(SystemError) {
      var (parcels, count) = try pack(descriptors, perMessage: DescriptorParcel.fewPerMessage)
      if parcels.count >= min(room, manyParcels) {
        for parcel in parcels { LocalSocket.close(parcel.end) }
        (parcels, count) = try pack(descriptors, perMessage: DescriptorParcel.mostPerMessage)
      }
      guard parcels.count < room else {
        for parcel in parcels { LocalSocket.close(parcel.end) }
        journal.write(
          .limitReached, .warning,
          "\(counted(descriptors.count, "connection")) closed: handing them over takes "
            + "\(parcels.count + 1) descriptors of the service manager, which has room for \(max(0, room)) "
            + "(FileDescriptorStoreMax=, FDSTORE=)")
        return ([], 0)
      }
      if count < descriptors.count {
        journal.write(
          .limitReached, .warning,
          "\(counted(descriptors.count - count, "connection")) closed: no more than \(count) can be handed over")
      }
      return (parcels, count)
    } catch {
      journal.write(.limitReached, .warning, "connections are closed, as they cannot be handed over: \(error)")
      return ([], 0)
    }
  }

  /// Takes the saved connections of an earlier process out of `stored`. The manager keeps them until `release`.
  ///
  /// - Parameter limit: maximum number of connections in this process.
  /// - Returns: the connections and the names to release; nil when there are none, or when they are invalid and
  ///   therefore closed.
  static func restore(
    from stored: inout [PassedDescriptors.Stored], atMost limit: Int, _ manager: ServiceManager, _ journal: Journal
  ) -> (saved: SavedConnections, names: [String])? {
    let mine = stored.filter { $0.name == stateName || parcel($0) != nil }
    guard !mine.isEmpty else { return nil }
    let names = Array(Set(mine.map(\.name)))
    stored.removeAll { names.contains($0.name) }
    defer { for descriptor in mine { LocalSocket.close(descriptor.descriptor) } }
    let parcels = mine.compactMap(parcel)
    let state = mine.first { $0.name == stateName }?.descriptor
    let bytes = state.flatMap { MemoryFile.bytes(of: $0) } ?? []
    let attempts = SavedState.attempts(in: bytes)
    if let state { unsafe pwrite(state, [attempts &+ 1], 1, off_t(SavedState.attemptsOffset)) }
    let isGivenUp = attempts >= attemptLimit
    if isGivenUp { release(names, from: manager) }
    do throws(InvalidSavedState) {
      var saved = try SavedConnections(state: bytes)
      let count = saved.count
      let room = isGivenUp ? 0 : limit
      attach(parcels, to: &saved, atMost: room)
      saved.dropDetached()
      report(saved.count, of: count, room: room, isGivenUp: isGivenUp, journal)
      return (saved, names)
    } catch {
      release(names, from: manager)
      journal.write(
        .stateLost, .warning, "\(described(parcels)) closed, as their saved state is not used: \(error.reason)")
      return nil
    }
  }

  /// The connections in parcels, for a message: `3 connections (uid 0: 1, uid 1000: 2)`, with at most ten users.
  private static func described(_ parcels: [Parcel]) -> String {
    var counts: [String: Int] = [:]
    for parcel in parcels {
      parcel.copy { _, descriptor in
        counts[PeerCredentials(of: descriptor).map { "uid \($0.user)" } ?? "TCP", default: 0] += 1
        LocalSocket.close(descriptor)
      }
    }
    let users = counts.sorted { ($1.value, $0.key) < ($0.value, $1.key) }
    let listed = users.prefix(10).map { "\($0.key): \($0.value)" } + (users.count > 10 ? ["…"] : [])
    let total = counted(counts.values.reduce(0, +), "connection")
    return listed.isEmpty ? total : "\(total) (\(listed.joined(separator: ", ")))"
  }

  /// Removes these descriptors from the manager. From now on, the connections may be read and written. Returns when the
  /// manager has received the message, or does not respond.
  static func release(_ names: [String], from manager: ServiceManager) {
    for name in names { manager.removeStored(name) }
    manager.flush(within: .seconds(1))
  }

  /// Assigns descriptors to the connections. Connections beyond `room` get CANCELED and are closed first: a parcel
  /// brings many descriptors at a time, for which there is no room later.
  private static func attach(_ parcels: [Parcel], to saved: inout SavedConnections, atMost room: Int) {
    if room < saved.count {
      for parcel in parcels {
        parcel.copy { index, descriptor in
          if (room..<saved.count).contains(index) { saved.cancel(index, by: descriptor) }
          LocalSocket.close(descriptor)
        }
      }
    }
    for parcel in parcels {
      parcel.copy { index, descriptor in
        guard index < min(room, saved.count) else { return LocalSocket.close(descriptor) }
        guard LocalSocket.refuseDescriptors(on: descriptor) else { return LocalSocket.closeAside(descriptor) }
        saved.attach(descriptor, to: index)
      }
    }
  }

  private static func report(_ taken: Int, of count: Int, room: Int, isGivenUp: Bool, _ journal: Journal) {
    if taken > 0 {
      journal.write(.connectionsTaken, .info, "\(counted(taken, "connection")) restored")
    }
    guard taken < count else { return }
    let reason =
      if isGivenUp {
        "\(attemptLimit) processes ended before they served them"
      } else if taken < min(room, count) {
        "their descriptors are missing"
      } else {
        "no more than \(room) fit (max_connections, LimitNOFILE=)"
      }
    journal.write(.limitReached, .warning, "\(count - taken) of \(counted(count, "connection")) closed: \(reason)")
  }
}
