//! The procedures of NFS version 3 (RFC 1813, section 3.3).
//!
//! Each acts as the caller while it makes the system calls that the kernel has to judge. Order
//! within a procedure: open what needs root's rights, become the caller, check what the calls
//! themselves do not check, do it, look at the attributes.

mod create;
mod data;
mod directory;
mod filesystem;
mod inspect;
mod remove;
mod request;
mod set;

use nicache_payload::Extent;

use crate::arguments::Arguments;
use crate::protocol::Status;
use crate::rpc::Replies;

pub(crate) use request::Request;

impl Request<'_> {
    /// Executes a call, appends its results and says how it went.
    pub(crate) fn execute(
        &mut self,
        arguments: &Arguments<'_>,
        data: Vec<Extent>,
        replies: &mut Replies,
    ) -> Status {
        let out = replies.text();
        match *arguments {
            Arguments::Null => Status::Ok,
            Arguments::GetAttr { object } => self.get_attributes(object, out),
            Arguments::SetAttr { object, ref attributes, guard } => {
                self.set_attributes(object, attributes, guard, out)
            }
            Arguments::Lookup { what } => self.look_up(what, out),
            Arguments::Access { object, access } => self.access(object, access, out),
            Arguments::ReadLink { link } => self.read_link(link, out),
            Arguments::Read { file, offset, count } => self.read(file, offset, count, replies),
            Arguments::Write { file, offset, count, stability, data_bytes } => {
                self.write(file, data::Write { offset, count, stability, data_bytes, data }, out)
            }
            Arguments::Create { place, ref how } => self.create(place, how, out),
            Arguments::MkDir { place, ref attributes } => {
                self.make_directory(place, attributes, out)
            }
            Arguments::SymLink { place, ref attributes, text } => {
                self.make_link(place, attributes, text, out)
            }
            Arguments::MkNod { place, ref special } => self.make_special(place, special, out),
            Arguments::Remove { place } => self.remove(place, out),
            Arguments::RmDir { place } => self.remove_directory(place, out),
            Arguments::Rename { from, to } => self.rename(from, to, out),
            Arguments::Link { file, place } => self.link(file, place, out),
            Arguments::ReadDir { directory, cookie, verifier, count } => {
                self.read_directory(directory, directory::From { cookie, verifier }, count, out)
            }
            Arguments::ReadDirPlus { directory, cookie, verifier, directory_count, count_max } => {
                self.read_directory_plus(
                    directory,
                    directory::From { cookie, verifier },
                    directory_count,
                    count_max,
                    out,
                )
            }
            Arguments::FsStat { root } => self.file_system_state(root, out),
            Arguments::FsInfo { root } => self.file_system_information(root, out),
            Arguments::PathConf { object } => self.path_configuration(object, out),
            Arguments::Commit { file, .. } => self.commit(file, out),
        }
    }
}
