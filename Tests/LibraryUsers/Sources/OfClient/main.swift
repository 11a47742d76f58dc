// A program that depends on StreamClient and Reactive.
import Reactive
import StreamClient

let connection = try StreamConnection(socket: "/nowhere/streamd.sock")
do {
  for try await event in connection.stream("quotes").values.shareReplay() { preconditionFailure("\(event)") }
  preconditionFailure("no failure")
} catch {
  guard case .cannotConnect = error else { preconditionFailure("\(error)") }
}
print("StreamClient: a product of its own")
