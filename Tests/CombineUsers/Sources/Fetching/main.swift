// A program that fetches without Foundation: the alternative to `URLSession.dataTaskPublisher`, on libcurl.
import Reactive
import StreamSources

do {
  for try await (data, response) in HTTPDataPublisher(url: "ftp://127.0.0.1/").values {
    preconditionFailure("\(data.count) bytes of \(response.url)")
  }
  preconditionFailure("no failure")
} catch {
  precondition("\(error)".contains("not an http or https URL"), "\(error)")
}
print("StreamSources: a product of its own")
