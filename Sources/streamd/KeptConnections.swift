import EventLoop
import Glibc
import StreamServer
import Systemd

/// Client connections on their way from one process of the service to the next, in the keeping of the service manager:
/// the descriptors in parcels, and what is to be known of them beside.
enum KeptConnections {
  private static let parcelName = "connections"
  private static let stateName = "connections-state"

  /// Gives the connections into the manager's keeping. Those for which there is no room get CANCELED and are closed.
  ///
  /// - Parameter room: descriptors that the manager still takes: one for the state, and one for each parcel.
  static func store(_ saved: SavedConnections, with manager: ServiceManager, room: Int, _ journal: Journal) {
    do throws(SystemError) {
      let (parcels, count) = try DescriptorParcel.pack(saved.descriptors)
      defer { for parcel in parcels { close(parcel) } }
      guard parcels.count < room else {
        if !saved.descriptors.isEmpty {
          journal.write(
            .limitReached, .warning,
            "\(counted(saved.descriptors.count, "connection")) closed: handing them over takes "
              + "\(parcels.count + 1) descriptors of the service manager, which has room for \(max(0, room)) "
              + "(FileDescriptorStoreMax=, FDSTORE=)")
          saved.cancel(from: 0)
        }
        return
      }
      if count < saved.descriptors.count {
        journal.write(
          .limitReached, .warning,
          "\(counted(saved.descriptors.count - count, "connection")) closed: no more than \(count) can be handed over")
        saved.cancel(from: count)
      }
      let state = try MemoryFile.make(saved.state(ofFirst: count), name: stateName)
      defer { close(state) }
      manager.store(state, as: stateName)
      for parcel in parcels { manager.store(parcel, as: parcelName) }
    } catch {
      journal.write(.limitReached, .warning, "connections are closed, as they cannot be handed over: \(error)")
      saved.cancel(from: 0)
    }
  }

  /// Takes what an earlier process stored out of `stored`, and out of the manager's keeping.
  ///
  /// - Returns: nil when there is nothing, or nothing of use; the connections are closed then.
  static func take(
    from stored: inout [PassedDescriptors.Stored], for limits: ServerLimits, _ manager: ServiceManager,
    _ journal: Journal
  ) -> SavedConnections? {
    let mine = stored.filter { [parcelName, stateName].contains($0.name) }
    guard !mine.isEmpty else { return nil }
    stored.removeAll { [parcelName, stateName].contains($0.name) }
    for name in [parcelName, stateName] { manager.removeStored(name) }
    defer { for descriptor in mine { close(descriptor.descriptor) } }
    let descriptors = mine.filter { $0.name == parcelName }.flatMap { DescriptorParcel.unpack($0.descriptor) }
    let states = mine.filter { $0.name == stateName }.compactMap { MemoryFile.bytes(of: $0.descriptor) }
    do throws(SavedConnections.Useless) {
      let saved = try SavedConnections(state: states.last ?? [], descriptors, for: limits)
      journal.write(.connectionsTaken, .info, "\(counted(descriptors.count, "connection")) of the last process go on")
      return saved
    } catch {
      for descriptor in descriptors { close(descriptor) }
      journal.write(.stateLost, .warning, "connections are closed: \(error.reason)")
      return nil
    }
  }
}
