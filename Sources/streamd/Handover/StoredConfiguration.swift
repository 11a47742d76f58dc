import Glibc
import StreamRuntime
import StreamServer
import Systemd

/// The text of the configuration that was served last, held by the service manager exactly as long as connections and logs
/// are. A process that finds the file with mistakes serves this one, so that they are not lost with the service.
///
/// For one thread at a time.
final class StoredConfiguration: @unchecked Sendable {  // as said above
  /// As it is kept, if it is.
  private var text: [UInt8]?
  /// Under which names, oldest first.
  private var names: [String] = []
  private var nextNumber = 0

  private static let namePrefix = "config-"

  /// Takes what an earlier process stored out of `stored`. The manager holds it on.
  init(takenFrom stored: inout [PassedDescriptors.Stored], _ journal: Journal) {
    let mine = stored.filter { $0.name.hasPrefix(Self.namePrefix) }
    stored.removeAll { $0.name.hasPrefix(Self.namePrefix) }
    func number(_ stored: PassedDescriptors.Stored) -> Int { Int(stored.name.dropFirst(Self.namePrefix.count)) ?? 0 }
    for stored in mine.sorted(by: { number($0) < number($1) }) {
      // Of several the newest: a process was killed while it replaced one with the other.
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
    let limit = SavedState.headerBytes + ConfigurationSource.textLimit
    guard let bytes = MemoryFile.bytes(of: descriptor, limit: limit) else {
      throw InvalidSavedState(reason: "it cannot be read, or has more than \(limit) bytes")
    }
    return Array(try SavedState.open(bytes, as: .configuration))
  }

  /// How many descriptors the manager holds for it.
  var count: Int { names.count }

  /// - Parameter path: of the file, as which mistakes name it.
  /// - Returns: nil without one, or where what it refers to has changed: users, groups, credentials, files.
  func load(as path: String) -> ConfigurationSource? {
    text.flatMap { try? ConfigurationSource.parse($0, file: path) }
  }

  /// Keeps this text from now on, in place of the one before.
  func store(_ text: [UInt8], with manager: ServiceManager, _ journal: Journal) {
    // Where there is little room it is for connections.
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
