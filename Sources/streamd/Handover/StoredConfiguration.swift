import Glibc
import StreamRuntime
import StreamServer
import Systemd

/// The files of the last served configuration. The service manager stores them exactly as long as connections and logs.
/// A process that finds errors in the files serves the stored ones, so that connections and logs survive.
///
/// Confined to one thread at a time.
final class StoredConfiguration: @unchecked Sendable {  // confined as above
  /// The stored files, if there are any.
  private var text: [UInt8]?
  /// The names of the stored descriptors, oldest first.
  private var names: [String] = []
  private var nextNumber = 0

  private static let namePrefix = "config-"

  /// Takes the text of an earlier process out of `stored`. The manager still keeps it.
  init(takenFrom stored: inout [PassedDescriptors.Stored], _ journal: Journal) {
    let mine = stored.filter { $0.name.hasPrefix(Self.namePrefix) }
    stored.removeAll { $0.name.hasPrefix(Self.namePrefix) }
    func number(_ stored: PassedDescriptors.Stored) -> Int { Int(stored.name.dropFirst(Self.namePrefix.count)) ?? 0 }
    for stored in mine.sorted(by: { number($0) < number($1) }) {
      // The newest of several is used. There are several if a process was killed while replacing one by the other.
      do throws(InvalidSavedState) {
        text = try Self.text(in: stored.descriptor)
      } catch {
        journal.write(.stateLost, .warning, "the stored configuration is not used: \(error.reason)")
      }
      names.append(stored.name)
      nextNumber = max(nextNumber, number(stored) &+ 1)
      close(stored.descriptor)
    }
  }

  private static func text(in descriptor: CInt) throws(InvalidSavedState) -> [UInt8] {
    let limit = SavedState.headerBytes + 1 + ConfigurationText.limit
    guard let bytes = MemoryFile.bytes(of: descriptor, limit: limit) else {
      throw InvalidSavedState(reason: "it cannot be read, or has more than \(limit) bytes")
    }
    return Array(try SavedState.open(bytes, as: .configuration))
  }

  /// The number of the manager's descriptors that are configurations.
  var count: Int { names.count }

  /// - Parameter path: the main file's name in error messages.
  /// - Returns: nil if there is none, or if it has an error now, such as a user, group, credential or file that is
  ///   missing.
  func load(as path: String) -> ConfigurationSource? {
    text.flatMap { [ConfigurationText](stored: $0, path: path) }.flatMap { try? ConfigurationSource.parse($0) }
  }

  /// Stores these files in place of the previous ones.
  func store(_ files: [ConfigurationText], with manager: ServiceManager, _ journal: Journal) {
    let text = files.stored
    // If the store has little room, the room is for connections.
    guard manager.storeLimit > LogStore.reservedDescriptors, text != self.text else { return }
    do {
      let descriptor = try MemoryFile.make(SavedState.seal(text, as: .configuration), name: "configuration")
      defer { close(descriptor) }
      let name = "\(Self.namePrefix)\(nextNumber)"
      manager.store(descriptor, as: name)
      for former in names { manager.removeStored(former) }
      (self.text, names) = (text, [name])
      nextNumber &+= 1
    } catch {
      journal.write(.stateNotKept, .warning, "the configuration is not kept for a restart: \(error)")
    }
  }
}
